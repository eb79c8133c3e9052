"""Parameter groups: what weight decay acts on. Matrices always decay."""

from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

Kind = Literal["norms", "biases", "embeddings"]


def parameter_groups(model: nn.Module, no_decay: Sequence[Kind]) -> list[dict[str, Any]]:
    """Two groups for an optimizer: what decays and what has `weight_decay=0`; every parameter is in exactly one.

    A parameter is of the first kind that fits: `embeddings` (a table shared with an output layer too), `biases` (named
    so, those of norms included), `norms` (the gains: all else without two axes), matrix.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}

    def decays(name: str, parameter: nn.Parameter) -> bool:
        if id(parameter) in tables:
            return "embeddings" not in no_decay
        if name.rpartition(".")[2] == "bias":
            return "biases" not in no_decay
        return parameter.ndim > 1 or "norms" not in no_decay

    parameters = [(p, decays(name, p)) for name, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for p, decaying in parameters if decaying]},
        {"params": [p for p, decaying in parameters if not decaying], "weight_decay": 0.0},
    ]
