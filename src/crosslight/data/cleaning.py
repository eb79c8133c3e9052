"""Which training pairs are left out, and why. A pair leaves as a whole, never one side; test sets are never cleaned."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crosslight.data.scripts import wrong_script
from crosslight.errors import ConfigError

Mask = NDArray[np.bool_]

NOTHING = r"^[\s\p{Z}\p{Cc}\p{Cf}]*$"
"""Text that shows nothing: white space of any kind, control characters, zero-width marks."""

CONTROL = r"[\x00-\x08\x0E-\x1F\x7F-\x{84}\x{86}-\x{9F}]"
"""Control characters but TAB, VT, FF and NEL (U+0085), which separate words. cp1252 read as Latin-1 gives such."""

REASONS = ("empty", "control characters", "wrong script", "identical", "too long", "ratio", "duplicate", "leak")
"""Why a pair leaves, in the order in which it is asked; a pair counts for the first reason only."""


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """What training pairs must be like. Pairs with an empty side always leave; they teach nothing.

    `max_len` is in pieces, EOS not counted; `over_long` says whether a longer pair is left out or its sides are cut to
    their first `max_len` pieces. `max_ratio` bounds the longer side's pieces over the shorter one's.
    """

    max_len: int
    over_long: Literal["drop", "truncate"]
    max_ratio: float | None
    drop_identical: bool
    drop_duplicates: bool
    drop_control_characters: bool
    drop_wrong_script: bool

    def __post_init__(self) -> None:
        if self.max_len < 1:
            raise ConfigError(f"cleaning.max_len: {self.max_len} leaves no pair; it is a number of pieces, such as 256")
        if self.max_ratio is not None and not self.max_ratio >= 1:
            raise ConfigError(
                f"cleaning.max_ratio: {self.max_ratio} leaves no pair; it is the longer side's pieces over the shorter "
                f"one's, such as 3"
            )

    @property
    def options(self) -> dict[str, Any]:
        """All settings, for the key of a cache."""
        return asdict(self)

    def judge_text(self, chunk: pa.RecordBatch, source_lang: str, target_lang: str) -> dict[str, Mask]:
        """For each reason that the text alone gives: which pairs leave for it."""
        source, target = chunk.columns
        found = {"empty": _either(source, target, NOTHING)}
        if self.drop_control_characters:
            found["control characters"] = _either(source, target, CONTROL)
        if self.drop_wrong_script:
            found["wrong script"] = wrong_script(source, source_lang) | wrong_script(target, target_lang)
        if self.drop_identical:
            same = pc.equal(pc.utf8_trim_whitespace(source), pc.utf8_trim_whitespace(target))
            found["identical"] = same.to_numpy(zero_copy_only=False)
        return found

    def judge_lengths(self, source: NDArray[np.int32], target: NDArray[np.int32]) -> dict[str, Mask]:
        """For each reason that the numbers of pieces give: which pairs leave for it."""
        shorter, longer = np.minimum(source, target), np.maximum(source, target)
        found = {"empty": shorter == 0}
        if self.over_long == "drop":
            found["too long"] = longer > self.max_len
        if self.max_ratio is not None:
            found["ratio"] = longer > self.max_ratio * shorter
        return found


def without_nulls(chunk: pa.RecordBatch) -> pa.RecordBatch:
    """The chunk with an empty side where one is missing."""
    return pa.record_batch([pc.fill_null(column, "") for column in chunk.columns], schema=chunk.schema)


def _either(source: pa.Array, target: pa.Array, pattern: str) -> Mask:
    found = pc.or_(pc.match_substring_regex(source, pattern), pc.match_substring_regex(target, pattern))
    return found.to_numpy(zero_copy_only=False)
