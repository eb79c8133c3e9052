"""The encoder: self-attention and feed-forward, N times (Vaswani et al. 2017, section 3.1)."""

from torch import nn

from crosslight.nn.attention import MultiHeadAttention
from crosslight.nn.feed_forward import feed_forward
from crosslight.nn.positions import Positions
from crosslight.nn.residual import ResidualKind
from crosslight.shapes import Bool, Float, Tensor


class EncoderLayer(nn.Module):
    """Self-attention over the whole source, then the feed-forward network."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        activation: str,
        residual: ResidualKind,
        positions: Positions | None,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
    ) -> None:
        super().__init__()
        self.around_self = residual(d_model, dropout)
        self.self_attention = MultiHeadAttention(d_model, num_heads, dropout=attention_dropout, positions=positions)
        self.around_feed = residual(d_model, dropout)
        self.feed_forward = feed_forward(d_model, d_ff, activation, activation_dropout)

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Bool[Tensor, "..."]
    ) -> Float[Tensor, "batch source d_model"]:
        h = self.around_self.enter(x)
        key, value = self.self_attention.project(h)
        x = self.around_self.leave(x, self.self_attention(h, key, value, mask))
        return self.around_feed.leave(x, self.feed_forward(self.around_feed.enter(x)))


class Encoder(nn.Module):
    """A stack of encoder layers; what it returns is the memory that every decoder layer attends to."""

    def __init__(self, layers: list[EncoderLayer], last: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last = last

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Bool[Tensor, "..."]
    ) -> Float[Tensor, "batch source d_model"]:
        for layer in self.layers:
            x = layer(x, mask)
        return self.last(x)
