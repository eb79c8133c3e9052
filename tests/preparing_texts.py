"""Training text for tests of its preparation: sources that count how they are read, dirty pairs, what was built."""

import hashlib
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crosslight.data.cleaning import Cleaning
from crosslight.data.corpus import SCHEMA, Part, arrow_text
from crosslight.data.encoded import EncodedPairs
from crosslight.data.training_text import TrainingText

SPAWN = multiprocessing.get_context("spawn")

BASE: dict[str, Any] = {
    "max_len": 9,
    "over_long": "drop",
    "max_ratio": 3.0,
    "drop_identical": False,
    "drop_duplicates": False,
    "drop_control_characters": False,
    "drop_wrong_script": False,
}
OTHER: dict[str, Any] = {"max_len": 10, "over_long": "truncate", "max_ratio": 2.5} | {
    key: True for key in BASE if key.startswith("drop_")
}

THOROUGH: dict[str, Any] = {"drop_identical": True, "drop_duplicates": True, "drop_control_characters": True}

Lines = list[tuple[str | None, str | None]]


@dataclass
class Source:
    """Pairs in memory, in chunks of a chosen size. It counts how often it is read and calls `meanwhile` before each."""

    pairs: Lines
    chunk_rows: int = 16_384
    name: str = "toy"
    meanwhile: Callable[[int], None] | None = None
    reads: int = 0

    def fingerprint(self) -> str:
        return hashlib.sha256(repr(self.pairs).encode()).hexdigest()

    def chunks(self) -> Iterator[pa.RecordBatch]:
        self.reads += 1
        for number, start in enumerate(range(0, len(self.pairs), self.chunk_rows)):
            if self.meanwhile:
                self.meanwhile(number)
            rows = self.pairs[start : start + self.chunk_rows]
            yield pa.record_batch([arrow_text([row[side] for row in rows]) for side in (0, 1)], schema=SCHEMA)


@dataclass
class Table:
    """Pairs in a file, a pair a line with a TAB between; a source of our own that hashes what the file holds."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def fingerprint(self) -> str:
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def chunks(self) -> Iterator[pa.RecordBatch]:
        lines = [tuple(line.split("\t")) for line in self.path.read_text().split("\n")[:-1]]
        yield from Source(lines).chunks()  # type: ignore[arg-type]


def text(*sources: Any, langs: tuple[str, str] = ("symbols", "symbols"), **options: Any) -> TrainingText:
    parts = [Part(f"part {number}", source, *langs) for number, source in enumerate(sources)]
    return TrainingText(parts, Cleaning(**BASE | options))


def counted(size: int) -> Lines:
    """Pairs that are all fit and all differ."""
    return [(f"{i % 10} {i // 10 % 10} {i // 100 % 10} {i // 1000}", f"{i % 10} {i % 7}") for i in range(size)]


def dirty(size: int, seed: int = 1) -> Lines:
    """Random pairs of digits: some empty, copies, repetitions, too long, of uneven length."""
    rng = np.random.default_rng(seed)

    def side() -> str | None:
        line = " ".join(map(str, rng.integers(0, 4, rng.integers(0, 5))))
        odd = rng.random()
        return None if odd < 0.02 else " ".join("5" * 12) if odd < 0.05 else f"{line}\x02" if odd < 0.06 else line

    return [(side(), side()) for _ in range(size)]


def built(cache: Path) -> list[Path]:
    return sorted(path for path in cache.glob("*") if path.is_dir())


def rows(data: EncodedPairs) -> list[tuple[Any, ...]]:
    return [
        (data.row[i], data.source_text[i], data.target_text[i], data.source[i].tolist(), data.target[i].tolist())
        for i in range(len(data))
    ]


def lasting(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if key not in ("seconds", "bytes", "folder")}
