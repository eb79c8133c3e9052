"""A model without weights for search tests: the next symbol's probabilities are looked up by sentence and prefix."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

EOS, BOS = 0, 99  # BOS is no row of the table: it is only ever read
NextLogProbs = Callable[[int, tuple[int, ...]], list[float]]


@dataclass(frozen=True)
class TableState:
    """Which sentence each row belongs to, and what it has written (BOS aside)."""

    sentences: tuple[int, ...]
    prefixes: tuple[tuple[int, ...], ...]
    places: int = 1

    @classmethod
    def start(cls, num_sentences: int) -> "TableState":
        return cls(tuple(range(num_sentences)), ((),) * num_sentences)

    @property
    def num_rows(self) -> int:
        return len(self.sentences)

    def rows(self, chosen: list[int], places: int) -> "TableState":
        return TableState(tuple(self.sentences[i] for i in chosen), tuple(self.prefixes[i] for i in chosen), places)

    def select(self, sentences: Tensor) -> "TableState":
        chosen = [s * self.places + place for s in sentences.tolist() for place in range(self.places)]
        return self.rows(chosen, self.places)

    def branch(self, parents: Tensor) -> "TableState":
        assert len(parents) * self.places == self.num_rows
        chosen = [s * self.places + parent for s, places in enumerate(parents.tolist()) for parent in places]
        return self.rows(chosen, parents.shape[1])


@dataclass
class TableStep:
    """The step function. `rows` records how many rows each call had, `sentences` whose rows they were."""

    table: NextLogProbs
    rows: list[int] = field(default_factory=list)
    sentences: list[set[int]] = field(default_factory=list)

    def __call__(self, tokens: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        assert tokens.shape == (state.num_rows, 1)
        self.rows.append(state.num_rows)
        self.sentences.append(set(state.sentences))
        written = tuple(
            (*prefix, token) if token != BOS else prefix
            for prefix, token in zip(state.prefixes, tokens[:, 0].tolist(), strict=True)
        )
        logits = [self.table(*row) for row in zip(state.sentences, written, strict=True)]
        return torch.tensor(logits)[:, None], replace(state, prefixes=written)


def random_table(seed: int, vocab: int = 4) -> NextLogProbs:
    """Random probabilities, another distribution after every prefix of every sentence."""

    def log_probs(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        draw = np.random.default_rng([seed, sentence, len(prefix), *prefix]).normal(0, 1.5, vocab)
        return (draw - np.log(np.exp(draw).sum())).tolist()

    return log_probs


def every_hypothesis(
    table: NextLogProbs, sentence: int, limit: int, prefix: tuple[int, ...] = (), total: float = 0.0
) -> Iterator[tuple[tuple[int, ...], float]]:
    """All sequences of at most `limit` tokens, EOS included, with the sums of their log-probabilities."""
    for token, log_prob in enumerate(table(sentence, prefix)):
        if token == EOS:
            yield prefix, total + log_prob
        elif len(prefix) + 1 < limit:
            yield from every_hypothesis(table, sentence, limit, (*prefix, token), total + log_prob)


def ranked(table: NextLogProbs, sentence: int, limit: int, alpha: float) -> list[tuple[tuple[int, ...], float, float]]:
    """All hypotheses as (ids, log_prob, score), best first; the penalty is written out here once more."""
    found = [
        (ids, total, total / math.pow((5 + len(ids) + 1) / 6, alpha))
        for ids, total in every_hypothesis(table, sentence, limit)
    ]
    return sorted(found, key=lambda hypothesis: -hypothesis[2])
