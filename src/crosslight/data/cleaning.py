"""Which training pairs are left out, and a table that says how many and why. Pairs leave together, never one side."""

from dataclasses import dataclass

import numpy as np

from crosslight.data.corpus import Pairs
from crosslight.data.ragged import Ragged
from crosslight.errors import DataError
from crosslight.tokenizers.base import Tokenizers


@dataclass(frozen=True)
class EncodedPairs:
    """Token ids of aligned pairs, EOS at each end, with the texts they come from."""

    pairs: Pairs
    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)


def encode_pairs(pairs: Pairs, tokenizers: Tokenizers) -> EncodedPairs:
    """Every pair as token ids, each side closed by EOS."""
    source = [[*ids, tokenizers.source.eos_id] for ids in tokenizers.source.encode_batch(pairs.source)]
    target = [[*ids, tokenizers.target.eos_id] for ids in tokenizers.target.encode_batch(pairs.target)]
    return EncodedPairs(pairs, Ragged(source), Ragged(target))


def clean(encoded: EncodedPairs, max_len: int) -> tuple[EncodedPairs, dict[str, int]]:
    """The pairs fit for training, and how many left for each reason: `empty`, `too long`.

    Raises a DataError if none is left.
    """
    shortest = np.minimum(encoded.source.lengths, encoded.target.lengths) - 1
    longest = np.maximum(encoded.source.lengths, encoded.target.lengths) - 1
    empty, too_long = shortest == 0, longest > max_len
    left_out = {"empty": int(empty.sum()), "too long": int((too_long & ~empty).sum())}
    keep = np.flatnonzero(~(empty | too_long)).tolist()
    if not keep:
        raise DataError(
            f"{encoded.pairs.name}: no training pair is left of {len(encoded)} "
            f"({left_out['empty']} empty, {left_out['too long']} longer than data.max_len={max_len} pieces)"
        )
    if len(keep) == len(encoded):
        return encoded, left_out
    pairs = encoded.pairs
    kept = Pairs(pairs.name, [pairs.source[i] for i in keep], [pairs.target[i] for i in keep])
    source, target = ([side[i].tolist() for i in keep] for side in (encoded.source, encoded.target))
    return EncodedPairs(kept, Ragged(source), Ragged(target)), left_out
