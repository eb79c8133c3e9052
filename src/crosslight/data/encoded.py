"""Aligned pairs as text and as token ids, in Arrow tables: in memory, or memory-mapped from a file of any size."""

import hashlib
import logging
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crosslight.data.corpus import Pairs, arrow_text
from crosslight.tokenizers.base import Flat, Tokenizer, Tokenizers, flattened

log = logging.getLogger(__name__)

IDS = pa.list_(pa.int32())

SCHEMA = pa.schema(
    [("row", pa.int64()), ("source", pa.string()), ("target", pa.string()), ("source_ids", IDS), ("target_ids", IDS)]
)
"""`row` counts the pairs of the part from 0, before cleaning; ids are closed by EOS."""


class Column:
    """One column of several record batches. `column[i]` is the i-th text, or a view of the i-th ids.

    `arrays` are the column's parts, one a batch.
    """

    def __init__(self, batches: Sequence[pa.RecordBatch], name: str) -> None:
        self.arrays = [batch.column(name) for batch in batches]
        self._starts = [0, *accumulate(map(len, self.arrays))]
        self._ids = None
        if SCHEMA.field(name).type == IDS:
            self._ids = [(a.values.to_numpy(), a.offsets.to_numpy()) for a in self.arrays]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> Any:
        batch = bisect_right(self._starts, index) - 1
        place = index - self._starts[batch]
        if self._ids is None:
            return self.arrays[batch][place].as_py()
        values, offsets = self._ids[batch]
        return values[offsets[place] : offsets[place + 1]]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many ids each row has, EOS included."""
        assert self._ids is not None
        return np.concatenate([np.empty(0, np.int32), *(np.diff(offsets) for _, offsets in self._ids)])


class EncodedPairs:
    """Pairs with their ids. `parts` are the sizes of the parts that training mixes, one after the other.

    `content_hash` is over the text of both sides. `target_lang` is what the scorer is told, where it is not the run's.
    `sentence_ids` name the pairs; where they are not given, a pair is named by its place.
    """

    def __init__(
        self,
        name: str,
        batches: Sequence[pa.RecordBatch],
        content_hash: str,
        *,
        parts: Sequence[int] | None = None,
        target_lang: str | None = None,
        sentence_ids: NDArray[np.int64] | None = None,
    ) -> None:
        self.name, self.content_hash, self.target_lang = name, content_hash, target_lang
        self.sentence_ids = sentence_ids
        self.row, self.source_text, self.target_text, self.source, self.target = (
            Column(batches, field.name) for field in SCHEMA
        )
        self.source_lengths, self.target_lengths = self.source.lengths, self.target.lengths
        self.parts = list(parts) if parts is not None else [len(self)]

    def __len__(self) -> int:
        return len(self.row)


def id_array(ids: Flat, *, first: int | None = None, last: int | None = None) -> pa.Array:
    """Sequences as an Arrow array, each with the id `first` before it and `last` behind it, where they are given."""
    ends = np.cumsum(ids.lengths + (first is not None) + (last is not None), dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    values, inner = np.empty(offsets[-1], np.int32), np.ones(offsets[-1], bool)
    for added, places in ((first, offsets[:-1]), (last, ends - 1)):
        if added is not None:
            values[places], inner[places] = added, False
    values[inner] = ids.values
    return pa.ListArray.from_arrays(offsets, values)


def encoded_batch(rows: NDArray[np.int64], text: pa.RecordBatch, source_ids: pa.Array, target_ids: pa.Array) -> Any:
    """A batch of SCHEMA."""
    return pa.record_batch([pa.array(rows), *text.columns, source_ids, target_ids], schema=SCHEMA)


def encode_side(
    tokenizer: Tokenizer, lines: Sequence[str], limit: int | None, name: str, *, first: int = 1, tag: str | None = None
) -> tuple[list[list[int]], int]:
    """Each line as ids closed by EOS, and how many were cut: a line of more than `limit` ids loses its end.

    A warning names each such line by `name` and its number, counted from `first`.
    """
    before = [] if tag is None else [tokenizer.symbol_id(tag)]
    encoded = [[*before, *ids, tokenizer.eos_id] for ids in tokenizer.encode_batch(lines)]
    if limit is None:
        return encoded, 0
    over_long = [row for row, ids in enumerate(encoded) if len(ids) > limit]
    for row in over_long:
        log.warning("%s %d: cut from %d pieces to %d", name, row + first, len(encoded[row]) - 1, limit - 1)
        encoded[row] = [*encoded[row][: limit - 1], tokenizer.eos_id]
    return encoded, len(over_long)


def encode_pairs(pairs: Pairs | Sequence[Pairs], tokenizers: Tokenizers, limit: int | None = None) -> EncodedPairs:
    """Every pair of a validation or test set, or of several as one. Sides above `limit` ids, for which the model has no
    positions, are cut."""
    sets = [pairs] if isinstance(pairs, Pairs) else list(pairs)
    batches = [_encoded(each, tokenizers, limit) for each in sets]
    digest = hashlib.sha256("".join(each.content_hash for each in sets).encode()).hexdigest()
    return EncodedPairs(
        ", ".join(each.name for each in sets),
        batches,
        sets[0].content_hash if len(sets) == 1 else digest,
        target_lang=sets[0].target_lang if len(sets) == 1 else None,
    )


def _encoded(pairs: Pairs, tokenizers: Tokenizers, limit: int | None) -> pa.RecordBatch:
    source, _ = encode_side(tokenizers.source, pairs.source, limit, f"{pairs.name}, source line", tag=pairs.tag)
    target, _ = encode_side(tokenizers.target, pairs.target, limit, f"{pairs.name}, target line")
    text = pa.record_batch([arrow_text(pairs.source), arrow_text(pairs.target)], names=["source", "target"])
    return encoded_batch(np.arange(len(pairs)), text, id_array(flattened(source)), id_array(flattened(target)))
