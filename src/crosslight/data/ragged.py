"""Many sequences of token ids in two arrays: compact, quick to hand to a loader process."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


class Ragged:
    """Sequences of int32, stored end to end; `ragged[i]` is a view of the i-th."""

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self.lengths: NDArray[np.int64] = np.fromiter(map(len, sequences), np.int64, len(sequences))
        self._ends = np.cumsum(self.lengths)
        flat: Iterable[int] = (i for sequence in sequences for i in sequence)
        self._flat = np.fromiter(flat, np.int32, int(self.lengths.sum()))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> NDArray[np.int32]:
        end = self._ends[index]
        return self._flat[end - self.lengths[index] : end]
