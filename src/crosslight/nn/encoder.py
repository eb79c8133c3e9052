"""The encoder: self-attention and feed-forward, N times (Vaswani et al. 2017, section 3.1)."""

from torch import nn

from crosslight.nn.attention import MultiHeadAttention
from crosslight.nn.feed_forward import feed_forward
from crosslight.nn.layer_drop import layers_to_run
from crosslight.nn.masks import Mask, fastest
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

    def forward(self, x: Float[Tensor, "batch source d_model"], mask: Mask) -> Float[Tensor, "batch source d_model"]:
        h = self.around_self.enter(x)
        x = self.around_self.leave(x, self.self_attention(*self.self_attention.project_all(h, 0), mask))
        return self.around_feed.leave(x, self.feed_forward(self.around_feed.enter(x)))


class Encoder(nn.Module):
    """A stack of encoder layers; what it returns is the memory that every decoder layer attends to."""

    def __init__(self, layers: list[EncoderLayer], last: nn.Module, *, layer_drop: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last, self.layer_drop = last, layer_drop

    def forward(
        self, x: Float[Tensor, "batch source d_model"], mask: Bool[Tensor, "..."]
    ) -> Float[Tensor, "batch source d_model"]:
        run = layers_to_run(len(self.layers), self.layer_drop if self.training else 0.0)
        layer_mask = fastest(mask, x)
        for layer, runs in zip(self.layers, run, strict=True):
            if runs:
                x = layer(x, layer_mask)
        return self.last(x)
