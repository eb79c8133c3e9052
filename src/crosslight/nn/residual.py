"""Residual connections with layer norm before (pre-norm) or after (post-norm) the sublayer.

A sublayer is wrapped as `residual.leave(x, sublayer(residual.enter(x)))`.
"""

from typing import Protocol, runtime_checkable

from torch import nn

from crosslight.nn.dropout import Dropout
from crosslight.shapes import Float, Tensor


class PostNorm(nn.Module):
    """`norm(x + dropout(sublayer(x)))`, as in Vaswani et al. 2017, section 3.1."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def enter(self, x: Float[Tensor, "*shape d_model"]) -> Float[Tensor, "*shape d_model"]:
        return x

    def leave(
        self, x: Float[Tensor, "*shape d_model"], y: Float[Tensor, "*shape d_model"]
    ) -> Float[Tensor, "*shape d_model"]:
        return self.norm(self.dropout.added_to(x, y))

    def after_stack(self) -> nn.Module:
        """What follows the last layer: nothing, for its output is normed already."""
        return nn.Identity()


class PreNorm(nn.Module):
    """`x + dropout(sublayer(norm(x)))`, Xiong et al. 2020: trains deeper, without warm-up; the stack ends in a norm."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)

    def enter(self, x: Float[Tensor, "*shape d_model"]) -> Float[Tensor, "*shape d_model"]:
        return self.norm(x)

    def leave(
        self, x: Float[Tensor, "*shape d_model"], y: Float[Tensor, "*shape d_model"]
    ) -> Float[Tensor, "*shape d_model"]:
        return self.dropout.added_to(x, y)

    def after_stack(self) -> nn.Module:
        """What follows the last layer: the norm that the residual stream has not had yet."""
        return nn.LayerNorm(self.norm.normalized_shape)


Residual = PostNorm | PreNorm


@runtime_checkable
class ResidualKind(Protocol):
    """Makes the residual connection around one sublayer: one of the classes above."""

    def __call__(self, d_model: int, dropout: float) -> Residual: ...
