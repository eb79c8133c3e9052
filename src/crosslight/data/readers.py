"""Files of sentence pairs, each format read in chunks: two plain text files, TSV, CSV, JSON lines and Parquet.

Lines end as `lines.py` says. A line break inside a field becomes a space, so a pair stays one line a side.

- TSV: tabs split, nothing else; there is no quoting and no escaping.
- CSV: RFC 4180, fields between commas, quoted where they hold a comma, a quote or a line break.
- TSV and CSV: the first row is a header exactly if it holds the names that are looked for. All rows are equally wide,
  for a row of another width is most often a sentence that the separator has cut.
- JSON lines (.jsonl, .ndjson): one object a line, blank lines are skipped. A field that a record lacks is null.
- Parquet: text columns, also inside a struct; only the two needed are read.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crosslight.data.corpus import CHUNK_ROWS, SCHEMA, arrow_text
from crosslight.data.lines import COMPRESSION, LONGEST_LINE, line_arrays
from crosslight.errors import DataError

Field = str | int
"""A name, a dotted path to a nested one (`translation.de`), or the number of a column of TSV or CSV, from 0."""


@dataclass(frozen=True)
class Fields:
    """Which fields of a record hold the two sides. None is found by itself.

    Looked for are `translation.<lang>`, then `<lang>`, then `source` and `target`; in TSV at last columns 0 and 1.
    """

    source: Field | None
    target: Field | None
    source_lang: str
    target_lang: str

    def find(
        self, path: str, has: Callable[[Field], bool], known: Iterable[str], *, otherwise: tuple[int, int] | None = None
    ) -> tuple[Field, Field]:
        """The fields of a file that has these; a DataError lists those that are `known`."""
        langs = self.source_lang, self.target_lang
        guesses = [(f"translation.{langs[0]}", f"translation.{langs[1]}"), langs, ("source", "target")]
        choices: list[tuple[Field, Field]] = [
            (guess[0] if self.source is None else self.source, guess[1] if self.target is None else self.target)
            for guess in guesses
        ]
        if otherwise is not None and self.source is None and self.target is None:
            choices.append(otherwise)
        for source, target in choices:
            if has(source) and has(target):
                return source, target
        missing = [repr(field) for field in (self.source, self.target) if field is not None and not has(field)]
        wanted = " and ".join(missing or map(repr, choices[1]))
        shown = ", ".join(repr(name[:40]) for name in islice(known, 20))
        raise DataError(f"{path}: has no field {wanted}; it has {shown}; choose with source_field and target_field")


def read_text(source_path: str, target_path: str) -> Iterator[pa.RecordBatch]:
    """Line i of one file with line i of the other."""
    sides = line_arrays(source_path), line_arrays(target_path)
    held = [pa.array([], pa.string())] * 2
    pairs = 0
    while True:
        held = [lines if len(lines) else next(side, lines) for lines, side in zip(held, sides, strict=True)]
        rows = min(map(len, held))
        if rows == 0:
            break
        yield pa.record_batch([lines[:rows] for lines in held], schema=SCHEMA)
        held = [lines[rows:] for lines in held]
        pairs += rows
    counts = [pairs + len(lines) + sum(map(len, side)) for lines, side in zip(held, sides, strict=True)]
    check_counts(source_path, target_path, *counts)


def check_counts(source_path: str, target_path: str, source_lines: int, target_lines: int) -> None:
    """Raise a DataError if two files do not have equally many lines."""
    if source_lines != target_lines:
        raise DataError(
            f"{source_path} and {target_path}: {source_lines} source lines but {target_lines} target lines; "
            f"line i of one must translate line i of the other"
        )


def read_tsv(path: str, fields: Fields) -> Iterator[pa.RecordBatch]:
    """Columns between tabs; nothing is quoted, blank lines are left out."""
    columns, width, before = None, 0, 0
    for lines in line_arrays(path):
        rows = pc.split_pattern(lines, "\t")
        header = False
        if columns is None:
            first = rows[0].as_py()
            columns, header = _columns(path, fields, first, otherwise=(0, 1))
            width = len(first)
        widths, blank = pc.list_value_length(rows), pc.equal(lines, "")
        ragged = pc.index(pc.and_not(pc.not_equal(widths, width), blank), True).as_py()
        if ragged >= 0:
            raise _ragged(path, before + ragged + 1, widths[ragged].as_py(), width, "a field cannot hold a tab")
        before += len(lines)
        rows = rows.filter(pc.invert(blank))
        rows = rows[1:] if header else rows
        yield pa.record_batch([pc.list_element(rows, column) for column in columns], schema=SCHEMA)


def read_csv(path: str, fields: Fields) -> Iterator[pa.RecordBatch]:
    """Columns between commas, quoted as in RFC 4180."""
    rows = _csv_rows(path)
    first = next(rows, None)
    if first is None:
        return
    (source, target), header = _columns(path, fields, first)
    rows = rows if header else chain([first], rows)
    while chunk := list(islice(rows, CHUNK_ROWS)):
        yield _batch([arrow_text([row[column] for row in chunk]) for column in (source, target)])


def _csv_rows(path: str) -> Iterator[list[str]]:
    """The rows of a CSV file, blank lines left out."""
    csv.field_size_limit(LONGEST_LINE)
    lines = (line + "\n" for block in line_arrays(path) for line in block.to_pylist())
    reader, width = csv.reader(lines, strict=True), 0
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise DataError(f"{path}, line {line}: {error}; is a quote not closed or not doubled?") from error
        if row is None:
            return
        width = width or len(row)
        if row and len(row) != width:
            raise _ragged(path, line, len(row), width, "a field that holds a comma needs quotes")
        if row:
            yield row


def _columns(
    path: str, fields: Fields, first: list[str], *, otherwise: tuple[int, int] | None = None
) -> tuple[tuple[int, int], bool]:
    """The numbers of the two columns, and whether the first row is a header."""
    found = fields.find(
        path,
        lambda field: field in first if isinstance(field, str) else field < len(first),
        first,
        otherwise=otherwise,
    )
    source, target = (first.index(field) if isinstance(field, str) else field for field in found)
    return (source, target), any(isinstance(field, str) for field in found)


def _ragged(path: str, line: int, found: int, width: int, rule: str) -> DataError:
    return DataError(f"{path}, line {line}: {found} columns, but the first row has {width}; {rule}")


def read_json_lines(path: str, fields: Fields) -> Iterator[pa.RecordBatch]:
    """An object a line."""
    names, before = None, 0
    for lines in line_arrays(path):
        numbered = [(n, text) for n, text in enumerate(lines.to_pylist(), before + 1) if text and not text.isspace()]
        before += len(lines)
        if not numbered:
            continue
        records: Iterable[dict[str, Any]] = (_record(path, number, text) for number, text in numbered)
        if names is None:
            records = list(records)
            names = _json_names(path, fields, records)
        sources, targets = [], []
        for record in records:  # one at a time: thousands of live objects would keep the garbage collector busy
            sources.append(_look_up(record, names[0]))
            targets.append(_look_up(record, names[1]))
        for side in (sources, targets):
            if not set(map(type, side)) <= {str, type(None)}:
                row = next(row for row, value in enumerate(side) if not isinstance(value, str | None))
                raise DataError(f"{path}, line {numbered[row][0]}: holds {str(side[row])[:40]} where text is needed")
        yield _batch([arrow_text(sources), arrow_text(targets)])


def _json_names(path: str, fields: Fields, records: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The keys that lead to the two fields, as the first records together have them: a single one may lack a field."""
    known = dict.fromkeys(name for record in records for name in _leaves(record))
    found = fields.find(path, known.__contains__, known)
    top = {key for record in records for key in record}
    source, target = ([str(name)] if name in top else str(name).split(".") for name in found)
    return source, target


def _record(path: str, line: int, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}, line {line}: is not JSON ({getattr(error, 'msg', error)})") from error
    if not isinstance(record, dict):
        raise DataError(f'{path}, line {line}: is {text[:40]}, not an object such as {{"source": …, "target": …}}')
    return record


def _look_up(record: Any, keys: list[str]) -> Any:
    """The value that the keys lead to; None if there is none."""
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def _leaves(record: dict[str, Any]) -> Iterator[str]:
    """The names of all fields that are no objects, dotted where they are nested."""
    for name, value in record.items():
        if isinstance(value, dict) and value:
            yield from (f"{name}.{inner}" for inner in _leaves(value))
        else:
            yield name


def read_parquet(path: str, fields: Fields) -> Iterator[pa.RecordBatch]:
    """Two columns of text, perhaps inside a struct; no other is read."""
    import pyarrow.parquet as pq

    row = 0
    try:
        with pq.ParquetFile(path) as file:
            types = dict(_leaf_types(file.schema_arrow))
            names = [str(name) for name in fields.find(path, types.__contains__, types)]
            for name in names:
                kind = types[name].value_type if pa.types.is_dictionary(types[name]) else types[name]
                if kind not in (pa.string(), pa.large_string(), pa.string_view()):
                    raise DataError(f"{path}: column {name!r} holds {types[name]}, not text")
            for batch in file.iter_batches(CHUNK_ROWS, columns=names):
                sides = [_nested(batch, name).cast(pa.string()) for name in names]
                for side in sides:
                    side.validate(full=True)  # reading does not look whether the bytes are UTF-8
                yield _batch(sides)
                row += len(batch)
    except (OSError, pa.ArrowException) as error:
        place = f", after row {row}" if row else ""
        reason = " ".join(str(error).split()).rstrip(".")
        raise DataError(f"{path}{place}: cannot be read as Parquet ({reason})") from error


def _leaf_types(schema: Iterable[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    for column in schema:
        if pa.types.is_struct(column.type):
            yield from ((f"{column.name}.{name}", inner) for name, inner in _leaf_types(column.type))
        else:
            yield column.name, column.type


def _nested(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name in batch.schema.names:
        return batch.column(name)
    column, *path = name.split(".")
    return pc.struct_field(batch.column(column), path)  # null where the whole struct is


def _batch(sides: list[pa.Array]) -> pa.RecordBatch:
    """A chunk, line breaks inside its segments made spaces."""
    for number, side in enumerate(sides):
        if pc.any(pc.match_substring(side, "\n")).as_py():
            sides[number] = pc.replace_substring_regex(side, r"\r?\n", " ")
    return pa.record_batch(sides, schema=SCHEMA)


Reader = Callable[[str, Fields], Iterator[pa.RecordBatch]]

READERS: dict[str, Reader] = {
    ".tsv": read_tsv,
    ".csv": read_csv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".parquet": read_parquet,
}


def reader_of(path: str) -> Reader:
    """How a file of pairs is read, by the end of its name."""
    name = Path(path.lower())
    suffix = Path(name.stem).suffix if name.suffix in COMPRESSION else name.suffix
    if suffix not in READERS or (suffix == ".parquet" and name.suffix != suffix):
        raise DataError(
            f"{path}: pairs are read from .tsv, .csv, .jsonl and .ndjson (also with .gz or .zst) and .parquet files; "
            f"two plain text files are given as source and target"
        )
    return READERS[suffix]
