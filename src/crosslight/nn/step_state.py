"""What a decoder remembers in a search, laid out for steps of one token: a row is a place of a sentence's beam.

Three things make a step cheap:

- The places of a sentence share its source: keys and values of the memory are stored once a sentence, and so are those
  of the target. Each place attends to the entries of its own past, its `ancestors`, and to no others. So a beam that
  moves changes who descends from whom, and no keys or values are copied.
- Keys are stored transposed, and their number is a multiple of `LANES`: small matrix products and the softmax are two
  to five times faster so.
- Keys and values have room for steps to come. The first state that is extended writes into it; what an earlier state
  sees does not change, and a second extension of the same state copies.
"""

from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from crosslight.nn.decoder_state import DecoderState
from crosslight.nn.masks import additive
from crosslight.shapes import Bool, Float, Int, Tensor

LANES = 16
"""Numbers of keys are multiples of this: float32 numbers in a register of AVX-512."""

STEPS_AHEAD = 8
"""For so many steps there is room when keys and values have been moved to a larger block."""


@dataclass
class Taken:
    """How many entries of a block are written, by any of the states that share it."""

    entries: int


@dataclass(frozen=True)
class StepState:
    """Row `sentence * places + place` is one hypothesis. `length` counts the target tokens that each row has seen."""

    source_key: Float[Tensor, "layer sentence head head_dim source"]
    source_value: Float[Tensor, "layer sentence head source head_dim"]
    source_bias: Float[Tensor, "sentence 1 1 source"]
    target_key: Float[Tensor, "layer sentence head head_dim entry"]
    target_value: Float[Tensor, "layer sentence head entry head_dim"]
    taken: Taken
    ancestors: Bool[Tensor, "sentence place seen"]
    length: int

    @classmethod
    def of(cls, state: DecoderState) -> "StepState":
        """The same state, one place a sentence."""
        mask = state.source_mask
        ahead = -mask.shape[-1] % LANES
        # a value of padding is zero, so that a source without any token adds nothing, as in `attention_weights`
        key = torch.stack([layer.source[0].transpose(-2, -1) for layer in state.layers])
        value = torch.stack([layer.source[1] for layer in state.layers]) * mask.transpose(-2, -1)
        empty = value[..., :0, :]
        pairs = [layer.target for layer in state.layers]
        seen = [pair for pair in pairs if pair is not None]
        return cls(
            functional.pad(key, (0, ahead)),
            functional.pad(value, (0, 0, 0, ahead)),
            additive(functional.pad(mask, (0, ahead)), key.dtype),
            torch.stack([pair[0] for pair in seen]).transpose(-2, -1) if seen else empty.transpose(-2, -1),
            torch.stack([pair[1] for pair in seen]) if seen else empty,
            Taken(state.length),
            torch.ones((mask.shape[0], 1, state.length), dtype=torch.bool, device=mask.device),
            state.length,
        )

    @property
    def num_rows(self) -> int:
        return self.ancestors.shape[0] * self.ancestors.shape[1]

    @property
    def source_lengths(self) -> Int[Tensor, " row"]:
        """How many source tokens each row may attend to."""
        lengths = (self.source_bias == 0).sum(dim=-1).flatten()
        return lengths.repeat_interleave(self.ancestors.shape[1])

    def select(self, sentences: Int[Tensor, " new_sentence"]) -> "StepState":
        """The state of the given sentences, with all their places; one may occur several times or not at all."""
        return StepState(
            self.source_key.index_select(1, sentences),
            self.source_value.index_select(1, sentences),
            self.source_bias.index_select(0, sentences),
            self.target_key.index_select(1, sentences),
            self.target_value.index_select(1, sentences),
            Taken(self.ancestors.shape[2]),
            self.ancestors.index_select(0, sentences),
            self.length,
        )

    def branch(self, parents: Int[Tensor, "sentence new_place"]) -> "StepState":
        """The state in which each new place continues the given old place of its sentence."""
        index = parents[:, :, None].expand(-1, -1, self.ancestors.shape[2])
        return replace(self, ancestors=self.ancestors.gather(1, index))

    def extended(self) -> "StepState":
        """The state with one more entry a place, which sees its own; keys and values are to be written."""
        sentences, places, seen = self.ancestors.shape
        own = torch.eye(places, dtype=torch.bool, device=self.ancestors.device).expand(sentences, -1, -1)
        ancestors = torch.cat([self.ancestors, own], dim=2)
        key, value, taken = self.target_key, self.target_value, self.taken
        if taken.entries != seen or seen + places > key.shape[-1]:
            size = -(-(seen + STEPS_AHEAD * places) // LANES) * LANES
            # zeros: what nobody attends to has to be finite
            old_key, key = key, key.new_zeros((*key.shape[:-1], size))
            old_value, value = value, value.new_zeros((*value.shape[:-2], size, value.shape[-1]))
            key[..., :seen], value[..., :seen, :] = old_key[..., :seen], old_value[..., :seen, :]
            taken = Taken(seen)
        taken.entries += places
        return replace(
            self, target_key=key, target_value=value, taken=taken, ancestors=ancestors, length=self.length + 1
        )

    def write(
        self, layer: int, key: Float[Tensor, "row head 1 head_dim"], value: Float[Tensor, "row head 1 head_dim"]
    ) -> tuple[Float[Tensor, "sentence head head_dim entry"], Float[Tensor, "sentence head entry head_dim"]]:
        """Fill in a layer's keys and values of the newest entries; all of the layer's entries."""
        sentences, places, seen = self.ancestors.shape
        shape = (sentences, places, *key.shape[1::2])
        keys, values = self.target_key[layer], self.target_value[layer]
        keys[..., seen - places : seen] = key.view(shape).permute(0, 2, 3, 1)
        values[:, :, seen - places : seen] = value.view(shape).transpose(1, 2)
        return keys, values

    def target_bias(self) -> Float[Tensor, "sentence 1 place entry"]:
        """What is added to the scores of the target's entries: 0 for ancestors, minus infinity for all others."""
        key = self.target_key
        shape = (*self.ancestors.shape[:2], key.shape[-1])
        bias = torch.full(shape, -torch.inf, dtype=key.dtype, device=key.device)
        bias[..., : self.ancestors.shape[2]].masked_fill_(self.ancestors, 0.0)
        return bias[:, None]
