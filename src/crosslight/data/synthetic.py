"""Copy, reverse and sort: sequences of random symbols, seeded, with validation and test sets disjoint from training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from crosslight.data.corpus import Corpus, LazyPairs, Pairs
from crosslight.errors import ConfigError

Sequence = tuple[int, ...]

BLOCK = 4096
"""How many sequences are drawn at a time: one by one takes ten times as long."""

TASKS: dict[str, Callable[[Sequence], Sequence]] = {
    "copy": lambda symbols: symbols,
    "reverse": lambda symbols: symbols[::-1],
    "sort": lambda symbols: tuple(sorted(symbols)),
}


@dataclass(kw_only=True)
class SyntheticPairs(Corpus):
    """Sources are uniform over lengths `min_length` … `max_length` and over the symbols 0 … `num_symbols` - 1.

    Held-out sources are distinct and never occur in training; where a length has few possible sources (32 of length
    one, say), at most a quarter of them is held out.
    """

    task: Literal["copy", "reverse", "sort"]
    num_symbols: int
    min_length: int
    max_length: int
    num_train: int
    num_validation: int
    num_test: int
    seed: int

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise ConfigError(f"data.task: {self.task!r} is not one of {', '.join(TASKS)}")
        if min(self.num_train, self.num_validation, self.num_test) < 1 or self.seed < 0:
            raise ConfigError(
                f"data: num_train={self.num_train}, num_validation={self.num_validation} and num_test={self.num_test} "
                f"must be at least 1, seed={self.seed} at least 0"
            )
        if not 1 <= self.min_length <= self.max_length:
            raise ConfigError(f"data: need 1 <= min_length={self.min_length} <= max_length={self.max_length}")
        possible = sum(self._room(length) for length in range(self.min_length, self.max_length + 1))
        if self.num_validation + self.num_test > possible:
            raise ConfigError(
                f"data.num_test: {self.num_validation + self.num_test} held-out sequences are asked for, but only "
                f"{possible} can be held out of sequences this short; raise max_length or num_symbols"
            )
        held_out = list(self._distinct(np.random.default_rng([self.seed, 0])))
        self._held_out = held_out[: self.num_validation], held_out[self.num_validation :]

    def training_pairs(self) -> LazyPairs:
        return LazyPairs(f"{self.task} train", repr(self), self._training_pairs)

    def _training_pairs(self) -> Pairs:
        taken = {s for part in self._held_out for s in part}
        drawn = (s for s in self._drawn(np.random.default_rng([self.seed, 1])) if s not in taken)
        return self._pairs("train", list(islice(drawn, self.num_train)))

    def validation_pairs(self) -> Pairs:
        return self._pairs("validation", self._held_out[0])

    def test_pairs(self) -> dict[str, Pairs]:
        return {self.task: self._pairs("test", self._held_out[1])}

    def _room(self, length: int) -> int:
        return int(min(self.num_symbols**length // 4, 10**9))

    def _distinct(self, rng: np.random.Generator) -> dict[Sequence, None]:
        """The held-out sources, in the order they were drawn."""
        chosen: dict[Sequence, None] = {}
        used = dict.fromkeys(range(self.min_length, self.max_length + 1), 0)
        for sequence in self._drawn(rng):
            if sequence not in chosen and used[len(sequence)] < self._room(len(sequence)):
                chosen[sequence] = None
                used[len(sequence)] += 1
                if len(chosen) == self.num_validation + self.num_test:
                    break
        return chosen

    def _drawn(self, rng: np.random.Generator) -> Iterator[Sequence]:
        """Random sequences without end."""
        while True:
            lengths = rng.integers(self.min_length, self.max_length + 1, BLOCK)
            symbols, ends = rng.integers(0, self.num_symbols, lengths.sum()).tolist(), lengths.cumsum()
            for begin, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True):
                yield tuple(symbols[begin:end])

    def _pairs(self, name: str, sources: list[Sequence]) -> Pairs:
        words = [str(symbol) for symbol in range(self.num_symbols)]

        def text(symbols: Sequence) -> str:
            return " ".join([words[symbol] for symbol in symbols])

        answer = TASKS[self.task]
        return Pairs(f"{self.task} {name}", [text(s) for s in sources], [text(answer(s)) for s in sources])
