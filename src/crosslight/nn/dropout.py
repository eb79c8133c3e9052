"""Dropout (Srivastava et al. 2014) with cheap random numbers on a CPU.

torch draws one float for each element there, which in small models costs more than their matrix products. Here a 64-bit
word of the same generator decides eight elements, a byte each, so a probability is rounded to 1/256; where that would
change it by more than 1/50 of itself, two bytes each. What is kept is scaled by the rounded probability, so
expectations are exact. On a GPU torch's own kernel does it, whose draws cost nothing. See docs/performance.md.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from crosslight.shapes import Float, Tensor

DRAWS = (torch.int8, 2**8), (torch.int16, 2**16)


class Dropout(nn.Module):
    """Zeroes elements with probability `p` in training and scales the others by `1 / (1 - p)`."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return dropped(x, self.p if self.training else 0.0)

    def added_to(self, x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """`x + dropout(y)`, in one pass on a CPU."""
        if not self.training or self.p in (0, 1) or y.device.type != "cpu":
            return x + self(y)
        return _MultipliedAndAdded.apply(x, y, _kept(y, self.p))  # type: ignore[no-untyped-call, no-any-return]


def dropped(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """`x` with elements zeroed with probability `p`, the others scaled by `1 / (1 - p)`."""
    if p == 0:
        return x
    if x.device.type != "cpu" or p == 1:
        return functional.dropout(x, p)
    return _Multiplied.apply(x, _kept(x, p))  # type: ignore[no-untyped-call, no-any-return]


def _kept(like: Tensor, p: float) -> Tensor:
    """A factor for each element: zero, or the inverse of the share that is kept."""
    dtype, size = DRAWS[0] if abs(round(p * 2**8) / 2**8 - p) <= p / 50 else DRAWS[1]
    dropped = min(round(p * size), size - 1)
    words = torch.empty(-(-like.numel() * dtype.itemsize // 8), dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(dtype)[: like.numel()].view(like.shape) >= dropped - size // 2
    return kept.to(like.dtype).mul_(size / (size - dropped))


class _Multiplied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return gradient * ctx.saved_tensors[0], None


class _MultipliedAndAdded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, factor: Tensor) -> Tensor:
        ctx.save_for_backward(factor)
        return torch.addcmul(x, y, factor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # type: ignore[override]
        return gradient, gradient * ctx.saved_tensors[0], None
