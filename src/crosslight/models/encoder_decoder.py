"""The encoder-decoder Transformer of Vaswani et al. 2017, with the choices that later work added."""

from collections.abc import Callable
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn import functional

from crosslight.errors import ConfigError
from crosslight.nn.attention import head_size
from crosslight.nn.decoder import Decoder, DecoderLayer
from crosslight.nn.decoder_state import DecoderState
from crosslight.nn.embedding import Embedding
from crosslight.nn.encoder import Encoder, EncoderLayer
from crosslight.nn.initialization import initialize
from crosslight.nn.masks import causal, padding_mask, window_mask
from crosslight.nn.positions import Positions
from crosslight.nn.residual import ResidualKind
from crosslight.nn.step_state import StepState
from crosslight.shapes import Bool, Float, Int, Tensor


@runtime_checkable
class PositionsKind(Protocol):
    """Makes the positions for a stack: a Positions class, or one with its own options filled in."""

    def __call__(self, *, d_model: int, head_dim: int) -> Positions: ...


class EncoderDecoder(nn.Module):
    """Reads a source, writes a target; every decoder layer attends to the final output of the encoder.

    `tie` shares embedding tables: `none`; `target_output` (target embedding and output layer); `all` (the source
    embedding too, which needs one vocabulary for both sides). `encoder_window=w` lets source position i attend to j
    only if `|i - j| <= w`. Padding is never attended to. `dropout` acts on what sublayers add to the residual stream,
    `embedding_dropout` on the sums of embeddings and positions, `attention_dropout` on attention weights,
    `activation_dropout` inside the feed-forward networks; `layer_drop` skips whole layers.
    """

    def __init__(
        self,
        *,
        d_model: int,
        d_ff: int,
        num_heads: int,
        num_encoder_layers: int,
        num_decoder_layers: int,
        activation: str,
        dropout: float,
        attention_dropout: float,
        activation_dropout: float,
        embedding_dropout: float,
        layer_drop: float,
        tie: Literal["none", "target_output", "all"],
        encoder_window: int | None,
        positions: PositionsKind,
        residual: ResidualKind,
        source_vocab_size: int,
        target_vocab_size: int,
        pad_id: int,
    ) -> None:
        super().__init__()
        dropouts = {
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation_dropout": activation_dropout,
        }
        for key, probability in {**dropouts, "embedding_dropout": embedding_dropout, "layer_drop": layer_drop}.items():
            if not 0 <= probability < 1:
                raise ConfigError(f"model.{key}: {probability} is not in [0, 1)")
        if tie == "all" and source_vocab_size != target_vocab_size:
            raise ConfigError(
                f"model.tie: 'all' needs one vocabulary for both sides, but the source has {source_vocab_size} pieces "
                f"and the target {target_vocab_size}; use tokenizer.joint=true or model.tie=target_output"
            )
        if encoder_window is not None and encoder_window < 0:
            raise ConfigError(
                f"model.encoder_window: {encoder_window} is negative; 0 is the position itself, null no window"
            )
        self.pad_id, self.encoder_window = pad_id, encoder_window

        def stack_positions() -> Positions:
            return positions(d_model=d_model, head_dim=head_size(d_model, num_heads))

        layer = {"activation": activation, "residual": residual, **dropouts}
        source_positions, target_positions = stack_positions(), stack_positions()
        self.max_positions = source_positions.limit
        self.source_embedding = Embedding(
            source_vocab_size, d_model, positions=source_positions, dropout=embedding_dropout
        )
        self.target_embedding = Embedding(
            target_vocab_size, d_model, positions=target_positions, dropout=embedding_dropout
        )
        self.encoder = Encoder(
            [
                EncoderLayer(d_model, num_heads, d_ff, positions=source_positions.in_attention(), **layer)  # type: ignore[arg-type]
                for _ in range(num_encoder_layers)
            ],
            residual(d_model, dropout).after_stack(),
            layer_drop=layer_drop,
        )
        self.decoder = Decoder(
            [
                DecoderLayer(d_model, num_heads, d_ff, positions=target_positions.in_attention(), **layer)  # type: ignore[arg-type]
                for _ in range(num_decoder_layers)
            ],
            residual(d_model, dropout).after_stack(),
            layer_drop=layer_drop,
        )
        self.output = nn.Linear(d_model, target_vocab_size, bias=False)
        initialize(self)
        if tie == "none":
            nn.init.normal_(self.output.weight, std=d_model**-0.5)
        else:
            self.output.weight = self.target_embedding.table.weight
        if tie == "all":
            self.source_embedding.table.weight = self.target_embedding.table.weight

    def encode(self, source: Int[Tensor, "batch source"]) -> DecoderState:
        """Run the encoder; the state holds each decoder layer's keys and values of its final output."""
        # padding to the right, wherever it was: positions count from the first real token
        source = source.gather(1, (source == self.pad_id).int().argsort(dim=1, stable=True))
        source_mask = padding_mask(source, self.pad_id)
        memory = self.encoder(self.source_embedding(source), self._encoder_mask(source_mask))
        return DecoderState(self.decoder.start(memory), source_mask)

    def decode(
        self, tokens: Int[Tensor, "row query"], state: DecoderState | StepState
    ) -> tuple[Float[Tensor, "row query vocab"], DecoderState | StepState]:
        """Logits of the token after each of `tokens`, which follow those that `state` has seen, and the next state.

        Single tokens without gradients are a search: from the first on its state is a StepState, made for that.
        """
        if isinstance(state, StepState):
            return self._step(tokens, state)
        if tokens.shape[1] == 1 and not self.training and not torch.is_grad_enabled():
            return self._step(tokens, StepState.of(state))
        hidden, state = self._hidden(tokens, state)
        return self.output(hidden), state

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        target_in: Int[Tensor, "batch target"],
        head: Callable[[Tensor, Tensor], Any] = functional.linear,
    ) -> Any:
        """Teacher forcing, the one-step case of `encode` and `decode`: logits [batch, target, vocab].

        Another `head` gets what would make them, the decoder's output [batch, target, d_model] and the weight [vocab,
        d_model] of the output projection; what it returns is returned.
        """
        return head(self._hidden(target_in, self.encode(source))[0], self.output.weight)

    def _hidden(
        self, tokens: Int[Tensor, "row query"], state: DecoderState
    ) -> tuple[Float[Tensor, "row query d_model"], DecoderState]:
        past, query = state.length, tokens.shape[1]
        x = self.target_embedding(tokens, past)
        x, layers = self.decoder(x, state.layers, causal(query, past, tokens.device), state.source_mask, past)
        return x, DecoderState(layers, state.source_mask, past + query)

    @torch.no_grad()
    def _step(
        self, tokens: Int[Tensor, "row query"], state: StepState
    ) -> tuple[Float[Tensor, "row query vocab"], StepState]:
        """`decode`, token by token."""
        logits = []
        for column in tokens.split(1, dim=1):
            x, state = self.decoder.step(self.target_embedding(column, state.length), state)
            logits.append(self.output(x))
        return logits[0] if len(logits) == 1 else torch.cat(logits, dim=1), state

    def _encoder_mask(self, source_mask: Bool[Tensor, "batch 1 1 source"]) -> Bool[Tensor, "batch 1 _ source"]:
        if self.encoder_window is None:
            return source_mask
        return source_mask & window_mask(source_mask.shape[-1], self.encoder_window, source_mask.device)


def parameters_by_part(model: EncoderDecoder) -> dict[str, int]:
    """How many parameters each part of the model has; a shared table is counted once, where it is met first."""
    seen: set[int] = set()
    counts = {}
    for name, part in model.named_children():
        own = [p for p in part.parameters() if id(p) not in seen]
        seen.update(id(p) for p in own)
        counts[name] = sum(p.numel() for p in own)
    return counts
