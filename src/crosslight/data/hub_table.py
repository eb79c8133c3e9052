"""An Arrow table with text in two languages, as a source of pairs.

Two layouts are read: a `translation` column (`{"de": …, "en": …}`, as in wmt/wmt14) and one column a language (as in
bentrevett/multi30k).
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crosslight.data.corpus import CHUNK_ROWS, SCHEMA
from crosslight.errors import DataError


@dataclass(frozen=True)
class HubTable:
    """A table of the hub, mapped from `files`; `rows` (ascending) are those that count, None for all.

    Text is read by `chunks`, a chunk at a time. A DataError says if a language is missing.
    """

    name: str
    table: pa.Table = field(repr=False)
    files: Sequence[Path]
    source_lang: str
    target_lang: str
    rows: np.ndarray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        text_columns(self.table.schema.empty_table(), (self.source_lang, self.target_lang), self.name)

    def __len__(self) -> int:
        return len(self.table) if self.rows is None else len(self.rows)

    def fingerprint(self) -> str:
        """sha256 over the bytes of the files, the languages and the chosen rows.

        The fingerprint of `datasets` and the commit only name the files of the cache; somebody can edit them in place.
        Their bytes say what is in them, for about a second a gigabyte.
        """
        digest = hashlib.sha256(f"{self.source_lang}\0{self.target_lang}\0".encode())
        for path in self.files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        if self.rows is not None:
            digest.update(self.rows.astype(np.int64).tobytes())
        return digest.hexdigest()

    def chunks(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self.table), CHUNK_ROWS):
            part = self.table.slice(start, CHUNK_ROWS)
            if self.rows is not None:
                part = part.take(pa.array(rows_between(self.rows, start, start + CHUNK_ROWS)))
            if len(part):
                sides = text_columns(part, (self.source_lang, self.target_lang), self.name)
                yield pa.record_batch(sides, schema=SCHEMA)


def rows_between(rows: np.ndarray, start: int, end: int) -> np.ndarray:
    """The ascending `rows` from `start` to before `end`, counted from `start`."""
    first, last = np.searchsorted(rows, (start, end))
    return rows[first:last] - start


def text_columns(table: pa.Table, languages: tuple[str, str], label: str) -> list[pa.Array]:
    """The text of two languages, a line feed inside a segment as a space; a DataError if the table does not have it.

    Null stays null, also where the whole `translation` is.
    """
    nested = "translation" in table.schema.names
    known = [f.name for f in table.schema.field("translation").type] if nested else table.schema.names
    for key, lang in zip(("source_lang", "target_lang"), languages, strict=True):
        if lang not in known:
            raise DataError(f"data.{key}: {label} has no language {lang!r}; it has {', '.join(known)}")
    if nested:
        return [_text(pc.struct_field(table["translation"], lang), lang, label) for lang in languages]
    return [_text(table[lang], lang, label) for lang in languages]


def _text(column: pa.ChunkedArray, lang: str, label: str) -> pa.Array:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        raise DataError(f"data: {label} has {kind} where the text of {lang!r} should be; see its page for the columns")
    text = column.combine_chunks().cast(pa.string())
    return pc.replace_substring(pc.replace_substring(text, "\r\n", " "), "\n", " ")
