"""Which training pairs are left out, and a table that says how many and why. Pairs leave together, never one side."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosslight.data.corpus import Pairs
from crosslight.data.ragged import Ragged
from crosslight.errors import DataError
from crosslight.tokenizers.base import Tokenizer, Tokenizers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedPairs:
    """Token ids of aligned pairs, EOS at each end, with the texts they come from."""

    pairs: Pairs
    source: Ragged
    target: Ragged

    def __len__(self) -> int:
        return len(self.source)


def encode_pairs(pairs: Pairs, tokenizers: Tokenizers, limit: int | None = None) -> EncodedPairs:
    """Every pair as token ids, each side closed by EOS. Sides above `limit` ids are cut, with a warning."""
    source = encode_side(tokenizers.source, pairs.source, limit, f"{pairs.name}, source line")
    target = encode_side(tokenizers.target, pairs.target, limit, f"{pairs.name}, target line")
    return EncodedPairs(pairs, Ragged(source), Ragged(target))


def encode_side(
    tokenizer: Tokenizer, lines: Sequence[str], limit: int | None, name: str, first: int = 1
) -> list[list[int]]:
    """Each line as token ids and EOS. Where a model has positions for `limit` ids only, a longer line loses its end.

    A warning names each such line by `name` and its number, counted from `first`.
    """
    encoded = []
    for number, ids in enumerate(tokenizer.encode_batch(lines), first):
        if limit is not None and len(ids) + 1 > limit:
            log.warning(
                "%s %d: cut from %d pieces to the %d that the model has positions for",
                name,
                number,
                len(ids),
                limit - 1,
            )
            ids = ids[: limit - 1]
        encoded.append([*ids, tokenizer.eos_id])
    return encoded


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
