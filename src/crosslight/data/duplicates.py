"""Which pairs have occurred before, in a few bytes a pair: hashes in sorted arrays instead of a set of text."""

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]


def pair_hashes(text: pa.RecordBatch) -> Hashes:
    """A 64-bit hash for each pair; among 100 million pairs some two differ under one hash with probability 0.0003."""
    digest = xxhash.xxh3_64_intdigest
    hashes = (digest(f"{s}\n{t}".encode()) for s, t in zip(*(side.to_pylist() for side in text.columns), strict=True))
    return np.fromiter(hashes, np.uint64, text.num_rows)


class SeenBefore:
    """Remembers hashes, 8 bytes each, in sorted arrays that merge when they are of like size (as in an LSM tree)."""

    def __init__(self) -> None:
        self._levels: list[Hashes] = []

    def __call__(self, hashes: Hashes) -> NDArray[np.bool_]:
        """True for each hash that an earlier call or an earlier place of this one had."""
        repeated = np.ones(len(hashes), bool)
        repeated[np.unique(hashes, return_index=True)[1]] = False
        for level in self._levels:
            places = np.minimum(np.searchsorted(level, hashes), len(level) - 1)
            repeated |= level[places] == hashes
        fresh = np.sort(hashes[~repeated])
        while self._levels and len(self._levels[-1]) <= 2 * len(fresh):
            fresh = np.sort(np.concatenate([self._levels.pop(), fresh]), kind="stable")
        if len(fresh):
            self._levels.append(fresh)
        return repeated
