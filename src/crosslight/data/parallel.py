"""A user's own files as a corpus: plain text for each side, or files that hold both sides."""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_128

from crosslight.data.corpus import CHUNK_ROWS, Corpus, Pairs, PairSource, read_pairs
from crosslight.data.lines import count_lines
from crosslight.data.readers import Field, Fields, check_counts, read_text, reader_of
from crosslight.errors import ConfigError, DataError

Paths = str | list[str]


@dataclass(kw_only=True)
class FilePair:
    """`source` and `target`, plain text, line i with line i; or `pairs`, files with both sides. All null is no files.

    Each is a path, a pattern (`part-*.en`, sorted) or a list of these: file k of one side goes with file k of the
    other. `source_field` and `target_field` choose in `pairs` (`readers.Fields` says what null finds).
    """

    source: Paths | None = None
    target: Paths | None = None
    pairs: Paths | None = None
    source_field: Field | None = None
    target_field: Field | None = None

    def __post_init__(self) -> None:
        for name in ("source", "target", "pairs"):
            value = getattr(self, name)
            paths = value if isinstance(value, list) else [value]
            if value is not None and not all(isinstance(path, str) for path in paths):
                raise ConfigError(f"data: {name}={value!r} is no path and no list of paths")
        for name in ("source_field", "target_field"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, str | int | None):
                raise ConfigError(f"data: {name}={value!r} is neither the name of a field nor the number of a column")
        if self.source_field is not None and self.source_field == self.target_field:
            raise ConfigError(f"data: source_field and target_field are both {self.source_field!r}; a copy is no pair")
        if (self.source is None) != (self.target is None):
            raise ConfigError(f"data: source={self.source} and target={self.target}; give both files or neither")
        if self.source is not None and self.pairs is not None:
            raise ConfigError(f"data: source={self.source} and pairs={self.pairs}; give either pairs or the two sides")
        for name, value in (("source_field", self.source_field), ("target_field", self.target_field)):
            if isinstance(value, int) and value < 0:
                raise ConfigError(f"data: {name}={value}; columns are counted from 0")
            if value is not None and self.source is not None:
                raise ConfigError(f"data: {name}={value} chooses in files of pairs; plain text has no fields")

    @property
    def given(self) -> bool:
        return self.source is not None or self.pairs is not None

    def read(self, source_lang: str, target_lang: str) -> "FilePairs":
        """The pairs; a DataError says which file is missing."""
        fields = Fields(self.source_field, self.target_field, source_lang, target_lang)
        if self.pairs is not None:
            return FilePairs(_said(self.pairs), [(path,) for path in _expanded(self.pairs)], fields)
        assert self.source is not None
        assert self.target is not None
        name = f"{_said(self.source)} and {_said(self.target)}"
        sources, targets = _expanded(self.source), _expanded(self.target)
        if len(sources) != len(targets):
            raise DataError(
                f"{name}: {len(sources)} source files but {len(targets)} target files; "
                f"file k of one side must translate file k of the other"
            )
        return FilePairs(name, list(zip(sources, targets, strict=True)), fields)


def _said(paths: Paths) -> str:
    return paths if isinstance(paths, str) else ", ".join(paths)


def _expanded(paths: Paths) -> list[str]:
    """The files that are meant, patterns replaced by what they match, in sorted order."""
    files: list[str] = []
    for path in [paths] if isinstance(paths, str) else paths:
        path = os.path.expanduser(str(path))
        found = [path]
        if glob.has_magic(path) and not os.path.exists(path):
            found = sorted(file for file in glob.glob(path, recursive=True) if not os.path.isdir(file))
            if not found:
                raise DataError(f"{path}: no file matches this pattern (from the folder {os.getcwd()})")
        files += found
    if not files:
        raise DataError("data: an empty list of files; name one or more")
    for path in files:
        if os.path.isdir(path):
            raise DataError(f"{path}: is a folder; name its files, for example {os.path.join(path, '*.tsv')}")
        if not os.path.exists(path):
            raise DataError(f"{path}: cannot be read (No such file or directory)")
        if not os.path.isfile(path):
            raise DataError(f"{path}: is no regular file; text is read more than once, so a pipe will not do")
    return files


@dataclass(frozen=True)
class FilePairs:
    """Pairs in files: each of `files` is a source and a target path, or one path of a file that holds both sides."""

    name: str
    files: list[tuple[str, ...]]
    fields: Fields

    def fingerprint(self) -> str:
        """A hash of the bytes of all files and of how they are read; neither path nor time stamp is in it."""
        digest = xxh3_128(b"files 1")
        for paths in self.files:
            how = f"{reader_of(*paths).__name__} {self.fields}" if len(paths) == 1 else "read_text"
            digest.update(how.encode())
            for path in paths:
                digest.update(_hash_of_bytes(path))
        return digest.hexdigest()

    def chunks(self) -> Iterator[pa.RecordBatch]:
        for paths in self.files:
            pairs = 0
            for batch in self._read(paths):
                for start in range(0, len(batch), CHUNK_ROWS):
                    yield batch.slice(start, CHUNK_ROWS)
                pairs += len(batch)
            _check_some(paths, pairs)

    def _read(self, paths: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
        return reader_of(*paths)(*paths, self.fields) if len(paths) == 1 else read_text(*paths)

    def check(self) -> None:
        """Raise the DataError for plain text whose counts differ, which `chunks` would meet only at its end."""
        if any(len(paths) == 2 for paths in self.files):
            self.count()

    def count(self) -> int:
        """How many pairs there are. Plain text is only searched for line feeds; other files are read."""
        return self._count

    @cached_property
    def _count(self) -> int:
        total = 0
        for paths in self.files:
            if len(paths) == 2:
                counts = [count_lines(path) for path in paths]
                check_counts(*paths, *counts)
                pairs = counts[0]
            else:
                pairs = sum(map(len, self._read(paths)))
            _check_some(paths, pairs)
            total += pairs
        return total


def _check_some(paths: tuple[str, ...], pairs: int) -> None:
    if pairs == 0:
        raise DataError(f"{' and '.join(paths)}: no sentence pairs in it; leave it out or give another file")


def _hash_of_bytes(path: str) -> bytes:
    digest = xxh3_128()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return digest.digest()


@dataclass(frozen=True)
class Selected:
    """The rows of a source with these numbers (sorted, each once), or with `keep=False` all others."""

    name: str
    source: PairSource
    rows: np.ndarray = field(repr=False)
    keep: bool

    def fingerprint(self) -> str:
        rows = xxh3_128(self.rows.astype("<i8").tobytes()).hexdigest()
        return xxh3_128(f"{self.source.fingerprint()} {self.keep} {rows}".encode()).hexdigest()

    def chunks(self) -> Iterator[pa.RecordBatch]:
        start = 0
        for chunk in self.source.chunks():
            first, last = np.searchsorted(self.rows, (start, start + len(chunk)))
            chosen = np.full(len(chunk), not self.keep)
            chosen[self.rows[first:last] - start] = self.keep
            if chosen.any():
                yield chunk.filter(pa.array(chosen))
            start += len(chunk)
        if len(self.rows) and self.rows[-1] >= start:
            raise DataError(f"{self.source.name}: has {start} pairs, fewer than before; it changed during the run")

    def original_rows(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of pairs in `source`, given their places here."""
        if self.keep:
            return self.rows[places]
        return places + np.searchsorted(self.rows - np.arange(len(self.rows)), places, side="right")


@dataclass(kw_only=True)
class TextFiles(Corpus):
    """A user's own files. Without `validation` files, `held_out` training pairs take their place.

    The held-out pairs are drawn with `seed`; they are at most a tenth of the pairs and leave the training set.
    `test` is the test set of that name; `tests` has more of them by name, each a FilePair or its settings.
    """

    train: FilePair
    validation: FilePair
    test: FilePair
    tests: dict[str, Any]
    held_out: int
    seed: int

    def __post_init__(self) -> None:
        self.tests = {name: _file_pair(f"data.tests.{name}", node) for name, node in self.tests.items()}
        if self.held_out < 0 or self.seed < 0:
            raise ConfigError(f"data.held_out={self.held_out}, data.seed={self.seed}: neither can be negative")
        for name, files in self.tests.items():
            if not files.given:
                raise ConfigError(f"data.tests.{name}: names no files; give data.tests.{name}.source and .target")
        if self.test.given and "test" in self.tests:
            raise ConfigError("data.tests.test: data.test is also given; call one of the two otherwise")

    def training_pairs(self) -> PairSource:
        if self.validation.given:
            self._all.check()
            return self._all
        return Selected(self._all.name, self._all, self._held_out_rows, keep=False)

    def validation_pairs(self) -> Pairs:
        if self.validation.given:
            return self._in_memory(self.validation)
        rows = self._held_out_rows
        return read_pairs(Selected(f"{len(rows)} held-out pairs of {self._all.name}", self._all, rows, keep=True))

    def test_pairs(self) -> dict[str, Pairs]:
        sets: dict[str, FilePair] = {"test": self.test, **self.tests}
        return {name: self._in_memory(files) for name, files in sets.items() if files.given}

    def _in_memory(self, files: FilePair) -> Pairs:
        return read_pairs(files.read(self.source_lang, self.target_lang))

    @cached_property
    def _all(self) -> FilePairs:
        """The training files whole."""
        if not self.train.given:
            raise ConfigError(
                "data.train.source: no training files; give data.train.source=FILE and data.train.target=FILE, "
                "or data.train.pairs=FILE"
            )
        return self.train.read(self.source_lang, self.target_lang)

    @cached_property
    def _held_out_rows(self) -> np.ndarray:
        count = self._all.count()
        rng = np.random.default_rng(self.seed)
        return np.sort(rng.choice(count, min(self.held_out, count // 10), replace=False, shuffle=False))


def _file_pair(place: str, node: object) -> FilePair:
    """A FilePair, also from a plain mapping: on the command line nobody writes a `_target_`."""
    if isinstance(node, FilePair):
        return node
    if not isinstance(node, dict):
        raise ConfigError(f"{place}: {node!r} is no pair of files; give {place}.source and {place}.target")
    known = set(FilePair.__dataclass_fields__)
    if unknown := sorted(set(node) - known):
        raise ConfigError(f"{place}.{unknown[0]}: there is no such setting; it has {', '.join(sorted(known))}")
    return FilePair(**node)
