"""Parameter groups: weight decay acts on matrices, not on biases, norms and embeddings."""

from typing import Any

from torch import nn


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two groups for an optimizer: what decays and what has `weight_decay=0`; every parameter is in exactly one.

    A table shared with an embedding counts as an embedding.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    decaying = [p for p in parameters if p.ndim > 1 and id(p) not in embeddings]
    chosen = {id(p) for p in decaying}
    return [{"params": decaying}, {"params": [p for p in parameters if id(p) not in chosen], "weight_decay": 0.0}]
