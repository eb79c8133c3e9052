"""The text of all training parts after cleaning: what a tokenizer learns from and what is encoded."""

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property, reduce

import numpy as np
import pyarrow as pa

from crosslight.data.batching import Rows
from crosslight.data.cleaning import Cleaning, without_nulls
from crosslight.data.corpus import Part, row_numbers
from crosslight.errors import DataError


class TrainingText:
    """Parts and how to clean them. It is read anew each time, so it may be larger than memory."""

    def __init__(self, parts: list[Part], cleaning: Cleaning) -> None:
        self.parts, self.cleaning = parts, cleaning

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all text and of what cleaning does to it."""
        return self._fingerprint()

    def check_unchanged(self) -> None:
        """A DataError if the text is no more what its fingerprint says: what was made of it would be kept as that."""
        if self._fingerprint() != self.fingerprint:
            names = ", ".join(part.pairs.name for part in self.parts)
            raise DataError(f"{names}: changed while it was read; start again when it is whole")

    def _fingerprint(self) -> str:
        parts = [[p.name, p.pairs.fingerprint(), p.source_lang, p.target_lang, p.tag] for p in self.parts]
        return hashlib.sha256(json.dumps([parts, self.cleaning.options]).encode()).hexdigest()

    def chunks(self) -> Iterator[tuple[Part, pa.RecordBatch, Rows]]:
        """All pairs before cleaning, part by part, with their numbers in the part."""
        for part in self.parts:
            row = 0
            try:
                for chunk in part.pairs.chunks():
                    yield part, chunk, row_numbers(part.pairs, row, chunk.num_rows)
                    row += chunk.num_rows
            except OSError as error:  # which would be taken for a full disk by who writes what is read here
                raise DataError(f"{part.pairs.name}: cannot be read ({error.strerror or error})") from error

    def source(self) -> Iterator[str]:
        """The source lines that the text alone does not rule out."""
        return self._lines("source")

    def target(self) -> Iterator[str]:
        return self._lines("target")

    def _lines(self, side: str) -> Iterator[str]:
        for part, raw, _ in self.chunks():
            chunk = without_nulls(raw)
            masks = self.cleaning.judge_text(chunk, part.source_lang, part.target_lang)
            left = reduce(np.logical_or, masks.values())
            yield from chunk.filter(pa.array(~left)).column(side).to_pylist()
