"""Parallel text in plain files: line i of the source file translates to line i of the target file."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crosslight.data.corpus import Corpus, Pairs
from crosslight.data.lines import read_lines
from crosslight.errors import ConfigError


@dataclass(kw_only=True)
class FilePair:
    """Two files of equally many lines; None for both stands for no files."""

    source: str | None
    target: str | None

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            raise ConfigError(f"data: source={self.source} and target={self.target}; give both files or neither")

    @property
    def given(self) -> bool:
        return self.source is not None

    def read(self) -> Pairs:
        """The pairs; a DataError says which file is missing or how many lines each has."""
        assert self.source is not None
        assert self.target is not None
        return Pairs(f"{self.source} and {self.target}", read_lines(self.source), read_lines(self.target))


@dataclass(kw_only=True)
class TextFiles(Corpus):
    """A user's own files. Without `validation` files, `held_out` training pairs take their place.

    The held-out pairs are drawn with `seed`; they are at most a tenth of the file and leave the training set.
    """

    train: FilePair
    validation: FilePair
    test: FilePair
    held_out: int
    seed: int

    def training_pairs(self) -> Pairs:
        return self._split[0]

    def validation_pairs(self) -> Pairs:
        return self._split[1]

    def test_pairs(self) -> dict[str, Pairs]:
        return {"test": self.test.read()} if self.test.given else {}

    @cached_property
    def _split(self) -> tuple[Pairs, Pairs]:
        if not self.train.given:
            raise ConfigError(
                "data.train.source: no training files; give data.train.source=FILE and data.train.target=FILE"
            )
        pairs = self.train.read()
        if self.validation.given:
            return pairs, self.validation.read()
        order = np.random.default_rng(self.seed).permutation(len(pairs))
        size = min(self.held_out, len(pairs) // 10)
        held_out, rest = np.sort(order[:size]), np.sort(order[size:])
        return _take(pairs, rest, pairs.name), _take(pairs, held_out, f"{size} held-out pairs of {pairs.name}")


def _take(pairs: Pairs, rows: np.ndarray, name: str) -> Pairs:
    return Pairs(name, [pairs.source[i] for i in rows], [pairs.target[i] for i in rows])
