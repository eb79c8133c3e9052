"""Training steps of others, at their best settings, on our batches: what `benchmarks/train.py` compares with.

Each has three-way tied embeddings, label smoothing, sinusoidal positions, fused Adam and gradient clipping, as ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from crosslight.batches import Batch

Loss = Callable[[Batch], torch.Tensor]


@dataclass(frozen=True)
class Architecture:
    """The size of a Transformer, with its dropout on residual streams and embeddings."""

    layers: int
    d_model: int
    heads: int
    d_ff: int
    dropout: float
    max_tokens: int
    model: str

    def flops(self, vocab_size: int, source_tokens: float) -> float:
        """Operations of forward and backward pass a target token: 6 a weight, without attention's own products.

        `source_tokens` is how many source tokens come with each target token.
        """
        square, feed = self.d_model**2, 2 * self.d_model * self.d_ff
        encoder, decoder = self.layers * (4 * square + feed), self.layers * (8 * square + feed)
        return 6 * (decoder + self.d_model * vocab_size + source_tokens * encoder)


ARCHITECTURES = {
    "tiny": Architecture(4, 128, 4, 256, 0.3, 4096, "small"),
    "base": Architecture(6, 512, 8, 2048, 0.1, 2048, "base"),
}
SMOOTHING = 0.1


def huggingface(
    shape: Architecture, vocab_size: int, pad_id: int, bos_id: int, attention: str
) -> tuple[nn.Module, Loss]:
    """MarianMTModel, from scratch."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocab_size,
        d_model=shape.d_model,
        encoder_layers=shape.layers,
        decoder_layers=shape.layers,
        encoder_attention_heads=shape.heads,
        decoder_attention_heads=shape.heads,
        encoder_ffn_dim=shape.d_ff,
        decoder_ffn_dim=shape.d_ff,
        dropout=shape.dropout,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=pad_id,
        decoder_start_token_id=bos_id,
        eos_token_id=bos_id,
        max_position_embeddings=512,
        use_cache=False,
    )
    config._attn_implementation = attention
    model = MarianMTModel(config).train()

    def loss(batch: Batch) -> torch.Tensor:
        logits = model(
            input_ids=batch.source,
            attention_mask=batch.source != pad_id,
            decoder_input_ids=batch.target_in,
            use_cache=False,
        ).logits
        return _smoothed(logits, batch.target_out, pad_id)

    return model, loss


def by_hand(shape: Architecture, vocab_size: int, pad_id: int, bos_id: int, attention: str) -> tuple[nn.Module, Loss]:
    """torch.nn.Transformer between an embedding and its transpose, as tutorials have it."""
    model = _ByHand(shape, vocab_size, pad_id).train()
    return model, lambda batch: _smoothed(model(batch.source, batch.target_in), batch.target_out, pad_id)


class _ByHand(nn.Module):
    def __init__(self, shape: Architecture, vocab_size: int, pad_id: int) -> None:
        super().__init__()
        self.pad_id, self.scale = pad_id, shape.d_model**0.5
        self.table = nn.Embedding(vocab_size, shape.d_model)
        nn.init.normal_(self.table.weight, std=shape.d_model**-0.5)
        self.dropout = nn.Dropout(shape.dropout)
        self.stacks = nn.Transformer(
            shape.d_model, shape.heads, shape.layers, shape.layers, shape.d_ff, shape.dropout, batch_first=True
        )
        angles = torch.arange(512)[:, None] / 10000 ** (torch.arange(0, shape.d_model, 2) / shape.d_model)
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))

    def forward(self, source: Any, target: Any) -> torch.Tensor:
        padding = source == self.pad_id
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1]).isinf()
        hidden = self.stacks(
            self._embed(source),
            self._embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return functional.linear(hidden, self.table.weight)

    def _embed(self, ids: torch.Tensor) -> torch.Tensor:
        positions: Any = self.positions
        return self.dropout(self.table(ids) * self.scale + positions[: ids.shape[1]])


def _smoothed(logits: torch.Tensor, target: torch.Tensor, pad_id: int) -> torch.Tensor:
    return functional.cross_entropy(
        logits.flatten(0, 1).float(), target.flatten(), ignore_index=pad_id, label_smoothing=SMOOTHING, reduction="mean"
    )


RIVALS: dict[str, Callable[..., tuple[nn.Module, Loss]]] = {"huggingface": huggingface, "torch": by_hand}
