"""A corpus: sentence pairs for training, validation and named tests, and how they are read.

Training text may be larger than memory, so it is read in chunks, as often as needed; other sets are lists.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crosslight.errors import DataError

CHUNK_ROWS = 16_384

SCHEMA = pa.schema([("source", pa.string()), ("target", pa.string())])
"""The columns of a chunk. A missing side is null; a line feed inside a segment has become a space already."""


@runtime_checkable
class PairSource(Protocol):
    """Aligned text that can be read again and again: lists in memory, files, a table of the hub."""

    @property
    def name(self) -> str:
        """Where the text is from, for messages and the record."""
        ...

    def fingerprint(self) -> str:
        """A hash of what `chunks` gives. It never stays when the text changes; computing it may read the files."""
        ...

    def chunks(self) -> Iterator[pa.RecordBatch]:
        """All pairs in order, about CHUNK_ROWS at a time, in columns of SCHEMA."""
        ...


@runtime_checkable
class Excerpt(Protocol):
    """A source that leaves out pairs of another one."""

    def original_rows(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers that pairs have in the other source, so that a message names the right line."""
        ...


def row_numbers(source: PairSource, first: int, count: int) -> NDArray[np.int64]:
    """The numbers of `count` pairs from the one at place `first` on, in the text that the user gave."""
    places = np.arange(first, first + count)
    return source.original_rows(places) if isinstance(source, Excerpt) else places


@dataclass(frozen=True)
class Pairs:
    """Aligned sentences in memory; `source[i]` translates to `target[i]`. `name` says where they are from.

    `target_lang` is the language that the scorer is told, where it is not the run's; `tag` is put before each source.
    """

    name: str
    source: Sequence[str]
    target: Sequence[str]
    target_lang: str | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise DataError(
                f"{self.name}: {len(self.source)} source lines but {len(self.target)} target lines; "
                f"line i of one must translate line i of the other"
            )

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.source, self.target, strict=True)

    @cached_property
    def content_hash(self) -> str:
        """The hash of the text (`TextDigest`)."""
        digest = TextDigest()
        for chunk in self.chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def fingerprint(self) -> str:
        return self.content_hash

    def chunks(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            yield pa.record_batch([arrow_text(self.source[rows]), arrow_text(self.target[rows])], schema=SCHEMA)


class TextDigest:
    """sha256 over the text of both sides and the lengths of its lines, however it is cut into chunks."""

    def __init__(self) -> None:
        self._parts = [(hashlib.sha256(), hashlib.sha256()) for _ in SCHEMA]

    def update(self, chunk: pa.RecordBatch) -> None:
        """Add lines; only the columns `source` and `target` count, and no side is missing."""
        for (text, lengths), name in zip(self._parts, SCHEMA.names, strict=True):
            column = chunk.column(name)
            _, offsets, values = column.buffers()
            places = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1] if len(column) else None
            if places is not None:
                text.update(memoryview(values or b"")[places[0] : places[-1]])
                lengths.update(np.diff(places).tobytes())

    def hexdigest(self) -> str:
        """The hash of all that was added."""
        return hashlib.sha256(b"".join(part.digest() for pair in self._parts for part in pair)).hexdigest()


@dataclass(frozen=True)
class LazyPairs:
    """Pairs that are made only when they are read; `recipe` says all that decides what `make` gives."""

    name: str
    recipe: str
    make: Callable[[], Pairs] = field(repr=False)

    def fingerprint(self) -> str:
        return hashlib.sha256(self.recipe.encode()).hexdigest()

    def chunks(self) -> Iterator[pa.RecordBatch]:
        return self.make().chunks()


def arrow_text(lines: Sequence[str | None]) -> pa.Array:
    """Text as an Arrow array. Half of a surrogate pair, which is no character, becomes U+FFFD."""
    try:
        return pa.array(lines, pa.string())
    except UnicodeEncodeError:
        clean = [line and line.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for line in lines]
        return pa.array(clean, pa.string())


def read_pairs(source: PairSource, *, target_lang: str | None = None) -> Pairs:
    """The whole source in memory, for a validation or test set; a missing side becomes an empty one."""
    sides: tuple[list[str], list[str]] = [], []
    for chunk in source.chunks():
        for side, column in zip(sides, chunk.columns, strict=True):
            side.extend(text or "" for text in column.to_pylist())
    return Pairs(source.name, *sides, target_lang=target_lang)


@dataclass(frozen=True)
class Part:
    """One of the sources that training mixes. `tag` is a control symbol such as `<2de>`, put before each source."""

    name: str
    pairs: PairSource
    source_lang: str
    target_lang: str
    tag: str | None = None


@dataclass(kw_only=True)
class Corpus:
    """What every corpus has in its config; subclasses say where the pairs come from.

    `leaks` says what to do about training pairs with a side that is also in a validation or test set.
    """

    source_lang: str
    target_lang: str
    leaks: Literal["warn", "drop", "error", "ignore"]

    def training_pairs(self) -> PairSource:
        raise NotImplementedError

    def validation_pairs(self) -> Pairs:
        raise NotImplementedError

    def validation_sets(self) -> list[Pairs]:
        """The validation set, in pieces if it has several languages."""
        return [self.validation_pairs()]

    def test_pairs(self) -> dict[str, Pairs]:
        """The test sets by name."""
        raise NotImplementedError

    def training_parts(self) -> list[Part]:
        """What training mixes: for most corpora one part."""
        return [Part("train", self.training_pairs(), self.source_lang, self.target_lang)]

    def shares(self, sizes: Sequence[int]) -> list[float] | None:
        """How much of an epoch comes from each part, given how many pairs each has; None: every pair once."""
        return None

    def target_tags(self) -> dict[str, str]:
        """The control symbol that asks for each target language, known without reading text; most corpora need none."""
        return {}
