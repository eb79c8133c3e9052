"""Many lines at once through a BPE model, each distinct word only once.

No learnt piece reaches over a space, and no normalisation rule over an ASCII space, so the pieces of a line are those
of what stands between its spaces. Most words of a corpus are repetitions; to look them up is several times faster than
to merge their characters again, and Arrow does most of it outside Python's lock. The result is the library's own to the
last id: a model or a word for which this could fail goes through the library as a whole.
"""

from itertools import count
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crosslight.tokenizers.base import Flat, flattened
from crosslight.tokenizers.learning import SPACE

RULES = ("nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf", "identity")

MAX_WORD_BYTES = 64
"""A longer one is no word: text that has no spaces does not repeat itself, and would fill the memory."""

MAX_WORDS = 500_000
"""Words kept, some 100 MB. When there are more, all are forgotten."""


def word_by_word(model: Any) -> bool:
    """Whether a SentencePiece model (its protobuf) lets words be encoded one by one."""
    normalizer, trainer = model.normalizer_spec, model.trainer_spec
    pieces = [piece.piece for piece in model.pieces]
    return (
        trainer.model_type == trainer.BPE
        and normalizer.name in RULES
        and normalizer.add_dummy_prefix
        and normalizer.remove_extra_whitespaces
        and normalizer.escape_whitespaces
        and not trainer.treat_whitespace_as_suffix
        and SPACE in pieces  # else unknown characters of two words would melt into one piece
        and not any(SPACE in piece[1:] or " " in piece for piece in pieces)
    )


class Table(NamedTuple):
    """The ids of words. Those of a `strange` word, which might melt with the space before it, hold nowhere."""

    ids: pa.Array
    strange: NDArray[np.bool_]

    def with_more(self, more: "Table") -> "Table":
        """Both, one after the other."""
        return Table(pa.concat_arrays([self.ids, more.ids]), np.concatenate([self.strange, more.strange]))


class WordEncoder:
    """`encoder(lines)`: the ids of each line. May be used by several threads."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self._lock = Lock()
        self._place: dict[str, int] = {}
        self._table = self._encoded([])

    def __call__(self, lines: pa.Array) -> Flat:
        lines = pc.replace_substring(lines, SPACE, " ")
        _, offsets_buffer, text = lines.buffers()
        line_offsets = np.frombuffer(offsets_buffer, np.int32)[lines.offset :][: len(lines) + 1]
        first, last = int(line_offsets[0]), int(line_offsets[-1])
        if first == last:
            return Flat(np.empty(0, np.int32), np.zeros(len(lines), np.int32))
        starts = _word_starts(np.frombuffer(text, np.uint8)[first:last] == ord(" "), line_offsets - first) + first
        line_words = np.searchsorted(starts, line_offsets)
        long = np.flatnonzero(np.diff(np.append(starts, last)) > MAX_WORD_BYTES)
        if len(long):
            return self._without(lines, np.unique(np.searchsorted(line_words, long, side="right") - 1))
        word_offsets = pa.py_buffer(np.append(starts, last).astype(np.int32))
        words = pa.StringArray.from_buffers(len(starts), word_offsets, text).dictionary_encode()
        table, places = self._looked_up(words.dictionary.to_pylist())
        which = places[words.indices.to_numpy()]
        taken = table.ids.take(pa.array(which))
        result = Flat(taken.values.to_numpy(), np.diff(taken.offsets.to_numpy()[line_words]))
        strange = np.flatnonzero(table.strange[which])
        if not len(strange):
            return result
        rows = np.unique(np.searchsorted(line_words, strange, side="right") - 1)
        return result.replaced(rows, self._by_library(lines, rows))

    def _without(self, lines: pa.Array, rows: NDArray[np.int64]) -> Flat:
        """The ids of all lines, those of `rows` by the library."""
        others = np.ones(len(lines), bool)
        others[rows] = False
        found = self(lines.filter(pa.array(others)))
        lengths = np.zeros(len(lines), np.int32)
        lengths[others] = found.lengths
        return Flat(found.values, lengths).replaced(rows, self._by_library(lines, rows))

    def _by_library(self, lines: pa.Array, rows: NDArray[np.int64]) -> list[list[int]]:
        return self.processor.encode(lines.take(pa.array(rows)).to_pylist(), num_threads=1)

    def _looked_up(self, words: list[str]) -> tuple[Table, NDArray[np.int64]]:
        """A table with all these words, and where each is in it."""
        with self._lock:
            table, place = self._table, self._place.get
            places = np.fromiter((place(word, -1) for word in words), np.int64, len(words))
        unknown = np.flatnonzero(places < 0)
        missing = [words[i] for i in unknown.tolist()]
        if not missing:
            return table, places
        fresh = self._encoded(missing)
        with self._lock:
            if len(self._table.strange) + len(missing) > MAX_WORDS:
                self._table, self._place = self._encoded([]), {}
            self._place.update(zip(missing, count(len(self._table.strange)), strict=False))
            self._table = self._table.with_more(fresh)
        places[unknown] = np.arange(len(missing)) + len(table.strange)
        return table.with_more(fresh), places

    def _encoded(self, words: list[str]) -> Table:
        ids = flattened(self.processor.encode(words, num_threads=1))
        offsets = np.append(0, np.cumsum(ids.lengths)).astype(np.int32)
        strange = pc.match_substring_regex(pa.array(words, pa.string()), r"^ *\p{M}")
        return Table(pa.ListArray.from_arrays(offsets, ids.values), strange.to_numpy(zero_copy_only=False))


def _word_starts(spaces: NDArray[np.bool_], line_offsets: NDArray[np.int32]) -> NDArray[np.int64]:
    """Where words begin: at each space, which they include, and at each line with text."""
    begins = spaces.copy()
    begins[line_offsets[:-1][np.diff(line_offsets) > 0]] = True
    return np.flatnonzero(begins)
