"""One micro-batch of padded sentence pairs, as the collator makes it and the task consumes it."""

from dataclasses import dataclass, replace
from typing import Any

from crosslight.shapes import Int, Tensor


@dataclass(frozen=True)
class Batch:
    """Padded pairs. `target_in` starts with BOS, `target_out` ends with EOS; both are padded to the same width.

    `sentence_ids` index the data set, in row order. `epoch` and `index` say which micro-batch of the run this is: they
    seed dropout. A placeholder that evens out ranks has one row without a target and no sentence ids.
    """

    source: Int[Tensor, "batch source"]
    target_in: Int[Tensor, "batch target"]
    target_out: Int[Tensor, "batch target"]
    sentence_ids: tuple[int, ...]
    references: tuple[str, ...] = ()
    epoch: int = 0
    index: int = 0

    def to(self, device: Any, non_blocking: bool = False) -> "Batch":
        """The same batch on another device (Lightning calls this)."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=non_blocking)

        return replace(
            self, source=moved(self.source), target_in=moved(self.target_in), target_out=moved(self.target_out)
        )

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory (the DataLoader calls this)."""
        return replace(
            self,
            source=self.source.pin_memory(),
            target_in=self.target_in.pin_memory(),
            target_out=self.target_out.pin_memory(),
        )
