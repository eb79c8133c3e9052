"""Training text that is also in a validation or test set: a score on such a set would measure memory.

Sentences are compared in a normal form: NFKC, lower case, only letters and digits. That finds copies that differ in
case, spacing, quotation marks or punctuation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crosslight.data.corpus import Pairs, arrow_text

NOT_STABLE = (
    r"[^\x00-\x7F\x{C0}-\x{131}\x{134}-\x{13E}\x{141}-\x{148}\x{14A}-\x{17E}"
    r"\x{400}-\x{45F}\x{3041}-\x{3094}\x{30A1}-\x{30F4}\x{4E00}-\x{9FFF}]"
)
"""Lines of these characters only (Latin, Cyrillic, kana, Han) are in NFKC already; to normalise is dear."""

KEPT = np.array([byte >= 128 or chr(byte).isalnum() for byte in range(256)])


def normal_form(lines: pa.Array) -> pa.Array:
    """The part of each line by which copies are recognised; empty for a line without letters and digits.

    Of marks (accents, vowel signs) those behind a letter or digit are part of it.
    """
    unstable = pc.match_substring_regex(lines, NOT_STABLE)
    folded = pc.replace_with_mask(lines, unstable, pc.utf8_normalize(lines.filter(unstable), form="NFKC"))
    folded = pc.utf8_lower(folded)
    others = pc.match_substring_regex(folded, r"[^\x00-\x7F\p{L}\p{N}]")  # few: the expression below is dear, too
    form = pc.replace_substring_regex(folded.filter(others), r"(?:^|[^\p{L}\p{M}\p{N}])[^\p{L}\p{N}]*", "")
    return pc.replace_with_mask(_without_ascii_signs(folded), others, form)


def _without_ascii_signs(lines: pa.Array) -> pa.Array:
    """The lines without the ASCII characters that are neither letter nor digit."""
    if not len(lines):
        return lines
    _, buffer, text = lines.buffers()
    offsets = np.frombuffer(buffer, np.int32)[lines.offset :][: len(lines) + 1]
    data = np.frombuffer(text or b"", np.uint8)[offsets[0] : offsets[-1]]
    kept = KEPT[data]
    starts = offsets - offsets[0]
    ends = (starts - np.searchsorted(np.flatnonzero(~kept), starts)).astype(np.int32)
    return pa.StringArray.from_buffers(len(lines), pa.py_buffer(ends), pa.py_buffer(data[kept]))


@dataclass(frozen=True)
class _Side:
    """The sentences of all evaluation sets on one side, each normal form once."""

    forms: pa.Array
    texts: pa.Array

    @classmethod
    def of(cls, lines: list[str]) -> "_Side":
        texts = pc.unique(arrow_text(lines))
        forms = pc.unique(normal_form(texts))
        return cls(forms.filter(pc.not_equal(forms, "")), texts)


@dataclass(frozen=True)
class Overlap:
    """What a chunk of training pairs shares with the evaluation sets: `rows` is True for each such pair.

    `forms` holds, for each side, the numbers of the evaluation sentences that occur, `exact` those that occur letter by
    letter.
    """

    rows: NDArray[np.bool_]
    forms: tuple[NDArray[np.int64], NDArray[np.int64]]
    exact: tuple[NDArray[np.int64], NDArray[np.int64]]


class LeakGuard:
    """Looks for the sentences of `sets`, validation and test sets by name, in training text."""

    def __init__(self, sets: Mapping[str, Pairs]) -> None:
        self.sets = sets
        lines = (
            [line for pairs in sets.values() for line in pairs.source],
            [line for pairs in sets.values() for line in pairs.target],
        )
        self._sides = tuple(map(_Side.of, lines))
        self._found = [np.zeros(len(side.forms), bool) for side in self._sides]
        self._exact = [np.zeros(len(side.texts), bool) for side in self._sides]
        self.pairs = 0

    @property
    def fingerprint(self) -> list[list[str]]:
        """The sets by name and content."""
        return [[name, pairs.content_hash] for name, pairs in self.sets.items()]

    def look(self, chunk: pa.RecordBatch) -> Overlap:
        """What a chunk shares with the sets; changes nothing here, so that several threads can look."""
        rows, forms, exact = np.zeros(chunk.num_rows, bool), [], []
        for side, column in zip(self._sides, chunk.columns, strict=True):
            found = pc.index_in(normal_form(column), value_set=side.forms)
            hits = found.is_valid().to_numpy(zero_copy_only=False)
            rows |= hits
            forms.append(found.drop_null().to_numpy().astype(np.int64))
            texts = pc.index_in(column.filter(pa.array(hits)), value_set=side.texts)
            exact.append(texts.drop_null().to_numpy().astype(np.int64))
        return Overlap(rows, (forms[0], forms[1]), (exact[0], exact[1]))

    def count(self, overlap: Overlap, stay: NDArray[np.bool_]) -> None:
        """Add what `look` has found to the report; of the pairs, those that `stay` otherwise."""
        self.pairs += int((overlap.rows & stay).sum())
        for side in range(2):
            self._found[side][overlap.forms[side]] = True
            self._exact[side][overlap.exact[side]] = True

    def report(self) -> dict[str, Any]:
        """`training_pairs`: how many share a side; for each set: its lines, and how many of them training has.

        `source` and `target` count lines found after normalisation, `source_exact` and `target_exact` letter by letter.
        """
        report: dict[str, Any] = {"training_pairs": self.pairs, "sets": {}}
        for name, pairs in self.sets.items():
            counts: dict[str, int] = {"lines": len(pairs)}
            for side, lines in enumerate((pairs.source, pairs.target)):
                text = arrow_text(lines)
                kind = ("source", "target")[side]
                counts[kind] = self._hits(self._sides[side].forms, self._found[side], normal_form(text))
                counts[f"{kind}_exact"] = self._hits(self._sides[side].texts, self._exact[side], text)
            report["sets"][name] = counts
        return report

    @staticmethod
    def _hits(values: pa.Array, found: NDArray[np.bool_], lines: pa.Array) -> int:
        places = pc.index_in(lines, value_set=values).drop_null().to_numpy()
        return int(found[places].sum())
