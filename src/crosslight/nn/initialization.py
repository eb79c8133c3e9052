"""Initial weights: Xavier-uniform matrices, zero biases, embeddings of standard deviation d_model^-0.5.

The embedding's deviation makes the scaled embedding, and the logits of a tied output, of size one at the start.
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.overrides import TorchFunctionMode


def initialize(module: nn.Module) -> None:
    """Set every linear layer and embedding below `module`; norms keep their ones and zeros."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=part.embedding_dim**-0.5)


class Unfilled(TorchFunctionMode):
    """While it is entered, parameters get no initial values: for a model whose weights come from a file, or that is
    built only to see whether it can be.

    Memory that nobody fills costs nothing. The meta device would do as well, but what fills tensors there is written in
    Python and imports `torch._dynamo`, which takes over a second.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        if getattr(func, "__name__", None) in ("normal_", "uniform_") and isinstance(args[0], nn.Parameter):
            return args[0]
        return func(*args, **kwargs)
