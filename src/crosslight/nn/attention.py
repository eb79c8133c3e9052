"""Scaled dot-product attention and its multi-head form (Vaswani et al. 2017, section 3.2).

Attention knows nothing of caches: it takes the queries' input and ready-made keys and values. Self- and
cross-attention are the same class; they differ in where the keys come from and in their positions.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from crosslight.errors import ConfigError
from crosslight.nn.dropout import dropped
from crosslight.nn.masks import Mask, Rule, causal_mask
from crosslight.nn.positions import Positions
from crosslight.shapes import Float, Tensor

KeyValue = tuple[Float[Tensor, "batch head key head_dim"], Float[Tensor, "batch head key head_dim"]]

KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Of torch's kernels for GPUs. Without cuDNN's, which torch 2.13 prefers on a Hopper: it makes a plan for every shape,
some 30 ms on the host, and here each batch has another one."""


def attention_scores(
    query: Float[Tensor, "*batch query head_dim"], key: Float[Tensor, "*batch key head_dim"], scale: float
) -> Float[Tensor, "*batch query key"]:
    """`query · keyᵀ * scale`, before the softmax."""
    return (query * scale) @ key.transpose(-2, -1)


def attention_weights(
    scores: Float[Tensor, "*batch query key"], mask: Mask = None
) -> Float[Tensor, "*batch query key"]:
    """The softmax of the scores over the keys that the mask allows; all zeros where it allows none.

    Masked scores become the smallest finite number of their type, so a row without any key stays finite, in the
    gradient too; its weights are then set to zero. An additive mask (`masks.fastest`) has no such rows.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    if isinstance(mask, Rule):
        mask = causal_mask(scores.shape[-1], 0, scores.device)
    if mask.is_floating_point():
        return (scores + mask).softmax(dim=-1)
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(dim=-1)
    return weights * mask.any(dim=-1, keepdim=True)


def attend(
    query: Float[Tensor, "*batch query head_dim"],
    key: Float[Tensor, "*batch key head_dim"],
    value: Float[Tensor, "*batch key head_dim"],
    mask: Mask = None,
    *,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "*batch query head_dim"]:
    """The values averaged with the attention weights. `scale` defaults to `head_dim ** -0.5`.

    On a GPU a fused kernel does it: flash for no mask or a `Rule` in half precision, the memory-efficient one for any
    other mask and for float32. On a CPU plain products are faster for sentences.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if query.device.type != "cpu":
        rule, tensor = (True, None) if isinstance(mask, Rule) else (False, mask)
        with sdpa_kernel(KERNELS):
            return functional.scaled_dot_product_attention(
                query, key, value, tensor, dropout_p=dropout, is_causal=rule, scale=scale
            )
    weights = attention_weights(attention_scores(query, key, scale), mask)
    return dropped(weights, dropout) @ value


def attend_in_step(
    query: Float[Tensor, "sentence head place head_dim"],
    key: Float[Tensor, "sentence head head_dim key"],
    value: Float[Tensor, "sentence head key head_dim"],
    bias: Float[Tensor, "sentence 1 _ key"],
) -> Float[Tensor, "sentence head place head_dim"]:
    """`attend` for a step of a search (nn/step_state.py): the keys are transposed; `bias` is added to the scores."""
    scores = (query * query.shape[-1] ** -0.5) @ key
    return scores.add_(bias).softmax(dim=-1) @ value


def head_size(d_model: int, num_heads: int) -> int:
    """`d_model / num_heads`; a ConfigError names the divisors near it if that is no whole number."""
    if num_heads < 1 or d_model % num_heads:
        divisors = [n for n in range(1, d_model + 1) if d_model % n == 0]
        near = sorted(divisors, key=lambda n: abs(n - num_heads))[:2]
        raise ConfigError(
            f"model.num_heads: {num_heads} does not divide model.d_model={d_model}; "
            f"divisors near it are {' and '.join(map(str, sorted(near)))}"
        )
    return d_model // num_heads


class MultiHeadAttention(nn.Module):
    """`num_heads` attentions side by side, each on `d_model / num_heads` dimensions, and an output projection."""

    def __init__(self, d_model: int, num_heads: int, *, dropout: float, positions: Positions | None = None) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.dropout = num_heads, head_size(d_model, num_heads), dropout
        self.positions = positions or Positions()
        self.query = nn.Linear(d_model, d_model)
        # no bias: without rotary positions it would add the same to all scores of a query, which the softmax takes out
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def _split(self, x: Float[Tensor, "batch length d_model"]) -> Float[Tensor, "batch head length head_dim"]:
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)

    def project(self, x: Float[Tensor, "batch key d_model"]) -> KeyValue:
        """Keys and values of what has no positions of its own: of the memory."""
        weight, bias = torch.cat([self.key.weight, self.value.weight]), self._bias(self.value)
        key, value = functional.linear(x, weight, bias).chunk(2, dim=-1)
        return self._split(key), self._split(value)

    def project_all(
        self, x: Float[Tensor, "batch length d_model"], offset: int
    ) -> tuple[Float[Tensor, "batch head length head_dim"], KeyValue]:
        """Queries, keys and values for the positions `offset`, `offset + 1`, …, by one matrix product."""
        weight = torch.cat([self.query.weight, self.key.weight, self.value.weight])
        bias = torch.cat([self.query.bias, self._bias(self.value)])
        query, key, value = (self._split(part) for part in functional.linear(x, weight, bias).chunk(3, dim=-1))
        return self.positions.rotate(query, offset), (self.positions.rotate(key, offset), value)

    def queries(self, x: Float[Tensor, "batch query d_model"]) -> Float[Tensor, "batch head query head_dim"]:
        """Queries for `project`'s keys."""
        return self._split(self.query(x))

    def forward(
        self, query: Float[Tensor, "batch head query head_dim"], key_value: KeyValue, mask: Mask
    ) -> Float[Tensor, "batch query d_model"]:
        """What each query gathers from the values, through the output projection."""
        heads = attend(query, *key_value, mask, dropout=self.dropout if self.training else 0.0)
        return self.output(heads.transpose(1, 2).flatten(2))

    def project_step(
        self, x: Float[Tensor, "row 1 d_model"], offset: int
    ) -> tuple[Float[Tensor, "row head 1 head_dim"], KeyValue]:
        """`project_all` for one token in a search: to put the weights together would cost more than it brings."""
        query, key, value = (self._split(part(x)) for part in (self.query, self.key, self.value))
        return self.positions.rotate(query, offset), (self.positions.rotate(key, offset), value)

    def step(
        self,
        query: Float[Tensor, "row head 1 head_dim"],
        key: Float[Tensor, "sentence head head_dim key"],
        value: Float[Tensor, "sentence head key head_dim"],
        bias: Float[Tensor, "sentence 1 _ key"],
    ) -> Float[Tensor, "row 1 d_model"]:
        """`forward` for one token in a search: the rows of a sentence, side by side, share keys and values."""
        query = query.view(key.shape[0], -1, self.num_heads, self.head_dim).transpose(1, 2)
        heads = attend_in_step(query, key, value, bias)
        return self.output(heads.transpose(1, 2).reshape(-1, 1, self.num_heads * self.head_dim))

    @staticmethod
    def _bias(of: nn.Linear) -> Float[Tensor, " twice_d_model"]:
        """The bias of keys, which have none, and of values."""
        return torch.cat([torch.zeros_like(of.bias), of.bias])
