"""The decoder: causal self-attention, cross-attention to the final encoder output, feed-forward, N times."""

from torch import nn

from crosslight.nn.attention import MultiHeadAttention
from crosslight.nn.decoder_state import LayerState
from crosslight.nn.feed_forward import feed_forward
from crosslight.nn.layer_drop import layers_to_run
from crosslight.nn.masks import Mask, fastest
from crosslight.nn.positions import Positions
from crosslight.nn.residual import ResidualKind
from crosslight.nn.step_state import StepState
from crosslight.shapes import Bool, Float, Tensor


class DecoderLayer(nn.Module):
    """One layer. The keys and values it attends to, of the source and of earlier steps, arrive in its state."""

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
        self.around_cross = residual(d_model, dropout)
        self.cross_attention = MultiHeadAttention(d_model, num_heads, dropout=attention_dropout)
        self.around_feed = residual(d_model, dropout)
        self.feed_forward = feed_forward(d_model, d_ff, activation, activation_dropout)

    def start(self, memory: Float[Tensor, "batch source d_model"]) -> LayerState:
        """The state before the first target token: the memory projected to keys and values, once per sentence."""
        return LayerState(self.cross_attention.project(memory))

    def forward(
        self,
        x: Float[Tensor, "row query d_model"],
        state: LayerState,
        target_mask: Mask,
        source_mask: Mask,
        offset: int,
    ) -> tuple[Float[Tensor, "row query d_model"], LayerState]:
        query, key_value = self.self_attention.project_all(self.around_self.enter(x), offset)
        state = state.extend(key_value)
        assert state.target is not None
        x = self.around_self.leave(x, self.self_attention(query, state.target, target_mask))
        query = self.cross_attention.queries(self.around_cross.enter(x))
        x = self.around_cross.leave(x, self.cross_attention(query, state.source, source_mask))
        return self.around_feed.leave(x, self.feed_forward(self.around_feed.enter(x))), state

    def step(
        self,
        x: Float[Tensor, "row 1 d_model"],
        state: StepState,
        number: int,
        target_bias: Float[Tensor, "sentence 1 place entry"],
    ) -> Float[Tensor, "row 1 d_model"]:
        """`forward` for one token in a search. This layer has the given number; its newest entries are written."""
        query, key_value = self.self_attention.project_step(self.around_self.enter(x), state.length - 1)
        target = state.write(number, *key_value)
        x = self.around_self.leave(x, self.self_attention.step(query, *target, target_bias))
        query = self.cross_attention.queries(self.around_cross.enter(x))
        source = state.source_key[number], state.source_value[number]
        x = self.around_cross.leave(x, self.cross_attention.step(query, *source, state.source_bias))
        return self.around_feed.leave(x, self.feed_forward(self.around_feed.enter(x)))


class Decoder(nn.Module):
    """A stack of decoder layers. A layer that is skipped in training leaves its state as it was."""

    def __init__(self, layers: list[DecoderLayer], last: nn.Module, *, layer_drop: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.last, self.layer_drop = last, layer_drop

    def start(self, memory: Float[Tensor, "batch source d_model"]) -> tuple[LayerState, ...]:
        """Every layer's state before the first target token, all from the same final encoder output."""
        return tuple(layer.start(memory) for layer in self.layers)  # type: ignore[operator, misc]

    def forward(
        self,
        x: Float[Tensor, "row query d_model"],
        states: tuple[LayerState, ...],
        target_mask: Mask,
        source_mask: Bool[Tensor, "..."],
        offset: int,
    ) -> tuple[Float[Tensor, "row query d_model"], tuple[LayerState, ...]]:
        run = layers_to_run(len(self.layers), self.layer_drop if self.training else 0.0)
        masks = fastest(target_mask, x), fastest(source_mask, x)
        new_states = []
        for layer, state, runs in zip(self.layers, states, run, strict=True):
            if runs:
                x, state = layer(x, state, *masks, offset)
            new_states.append(state)
        return self.last(x), tuple(new_states)

    def step(
        self, x: Float[Tensor, "row 1 d_model"], state: StepState
    ) -> tuple[Float[Tensor, "row 1 d_model"], StepState]:
        """`forward` for one token in a search; nothing is dropped."""
        state = state.extended()
        bias = state.target_bias()
        for number, layer in enumerate(self.layers):
            x = layer.step(x, state, number, bias)  # type: ignore[operator]
        return self.last(x), state
