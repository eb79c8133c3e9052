"""What a decoder remembers between steps: a value that is extended and row-selected, never changed in place.

This is the form for training and for forced prefixes; a search goes on with a `StepState` (nn/step_state.py).
"""

from dataclasses import dataclass

import torch

from crosslight.shapes import Bool, Float, Int, Tensor

SourceKeyValue = tuple[Float[Tensor, "row head source head_dim"], Float[Tensor, "row head source head_dim"]]
TargetKeyValue = tuple[Float[Tensor, "row head target head_dim"], Float[Tensor, "row head target head_dim"]]


@dataclass(frozen=True)
class LayerState:
    """One decoder layer's keys and values: of the memory (`source`, fixed) and of the target so far (None at first)."""

    source: SourceKeyValue
    target: TargetKeyValue | None = None

    def extend(self, new: TargetKeyValue) -> "LayerState":
        """The state after more target positions, whose keys and values are `new`."""
        if self.target is None:
            return LayerState(self.source, new)
        key, value = self.target
        return LayerState(self.source, (torch.cat([key, new[0]], dim=2), torch.cat([value, new[1]], dim=2)))

    def select(self, rows: Int[Tensor, " new_row"]) -> "LayerState":
        target = None if self.target is None else _select(self.target, rows)
        return LayerState(_select(self.source, rows), target)


@dataclass(frozen=True)
class DecoderState:
    """The state of all layers, the mask of the source and the number of target tokens seen (`length`)."""

    layers: tuple[LayerState, ...]
    source_mask: Bool[Tensor, "row 1 1 source"]
    length: int = 0

    @property
    def num_rows(self) -> int:
        return self.source_mask.shape[0]

    @property
    def source_lengths(self) -> Int[Tensor, " row"]:
        """How many source tokens each row may attend to."""
        return self.source_mask[:, 0, 0].sum(dim=-1)

    def select(self, rows: Int[Tensor, " new_row"]) -> "DecoderState":
        """The state of the given rows in the given order; a row may occur several times or not at all."""
        layers = tuple(layer.select(rows) for layer in self.layers)
        return DecoderState(layers, self.source_mask.index_select(0, rows), self.length)


def _select(pair: tuple[Tensor, Tensor], rows: Int[Tensor, " new_row"]) -> tuple[Tensor, Tensor]:
    return pair[0].index_select(0, rows), pair[1].index_select(0, rows)
