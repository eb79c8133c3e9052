"""Position-wise feed-forward networks: ReLU (Vaswani et al. 2017, equation 2), GELU, and gated ones (Shazeer 2020)."""

from collections.abc import Callable

from torch import nn
from torch.nn import functional

from crosslight.errors import ConfigError
from crosslight.nn.dropout import Dropout
from crosslight.shapes import Float, Tensor

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "gelu": functional.gelu}
GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "glu": lambda x: x.sigmoid(),
    "reglu": functional.relu,
    "geglu": functional.gelu,
    "swiglu": functional.silu,
}


class FeedForward(nn.Module):
    """`outer(dropout(activation(inner(x))))` at every position."""

    def __init__(self, d_model: int, d_ff: int, activation: Callable[[Tensor], Tensor], dropout: float) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*shape d_model"]) -> Float[Tensor, "*shape d_model"]:
        return self.outer(self.dropout(self.activation(self.inner(x))))


class GatedFeedForward(nn.Module):
    """`outer(dropout(activation(gate(x)) * inner(x)))`; three matrices, so d_ff is often taken 2/3 as large."""

    def __init__(self, d_model: int, d_ff: int, activation: Callable[[Tensor], Tensor], dropout: float) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff)
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "*shape d_model"]) -> Float[Tensor, "*shape d_model"]:
        return self.outer(self.dropout(self.activation(self.gate(x)) * self.inner(x)))


def feed_forward(d_model: int, d_ff: int, activation: str, dropout: float) -> FeedForward | GatedFeedForward:
    """The network that the name of an activation stands for; a ConfigError lists the names."""
    if activation in PLAIN:
        return FeedForward(d_model, d_ff, PLAIN[activation], dropout)
    if activation in GATED:
        return GatedFeedForward(d_model, d_ff, GATED[activation], dropout)
    raise ConfigError(f"model.activation: {activation!r} is not one of {', '.join([*PLAIN, *GATED])}")
