"""Evaluation: one number for any batching and any number of processes (cases I03, I04), loss per token over all."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from texts import numbers
from torch import Tensor

from crosslight.data.collate import collate
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import encode_pairs
from crosslight.data.loaders import evaluation_loader
from crosslight.decoding.protocols import Hypothesis, Search
from crosslight.losses import LabelSmoothedCrossEntropy
from crosslight.metrics.translation import score_translations
from crosslight.tasks.evaluation import Evaluation, EvaluationResult, Translator
from crosslight.tokenizers.integers import EOS, PAD

TOKENIZERS = numbers(20)
SOURCE = ["1 2 3 4 5 6", "7", "8 9 10 11 12 13 14 15 16", "3 1 4 1 5", "", "2 7 1 8 2 8 1", "16 15 14 13"]
TARGET = ["1 2 3 4 5 6", "8", "8 9 10 11 12 13 14 15", "3 1 4 1 6 5", "17", "2 7 1 8 2 8 1 8 2", "16 15 14 13"]
LOGITS = torch.randn(23, 23, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Source:
    """The state of a model that only remembers what it was given."""

    ids: Tensor

    @property
    def num_rows(self) -> int:
        return len(self.ids)

    @property
    def source_lengths(self) -> Tensor:
        return (self.ids != PAD).sum(dim=1)

    def select(self, rows: Tensor) -> "Source":
        return Source(self.ids[rows])


class Bigrams:
    """A translator whose logits depend on the last token alone."""

    max_positions = None

    def encode(self, source: Tensor) -> Source:
        return Source(source)

    def decode(self, tokens: Tensor, state: Source) -> tuple[Tensor, Source]:
        return LOGITS[tokens], state


class Copies:
    """A search that finds the source itself, by a fixed rule, and a worse hypothesis behind it."""

    def max_lengths(self, source_lengths: Tensor, limit: int | None) -> Tensor:
        return source_lengths

    def __call__(self, step, state: Source, *, bos_id: int, eos_id: int, max_lengths: Tensor) -> list[list[Hypothesis]]:
        rows = [[i for i in row if i not in (PAD, EOS)] for row in state.ids.tolist()]
        assert max_lengths.tolist() == [len(row) + 1 for row in rows]
        return [[Hypothesis(tuple(row), -1.0, -1.0), Hypothesis((), -2.0, -2.0)] for row in rows]


def evaluation(smoothing: float = 0.0) -> Evaluation:
    return Evaluation(Bigrams(), LabelSmoothedCrossEntropy(smoothing, PAD), Copies(), TOKENIZERS.target, "de")


def data(count: int = 7):
    return encode_pairs(Pairs("toy", SOURCE[:count], TARGET[:count]), TOKENIZERS)


def in_batches(size: int, evaluated: Evaluation) -> EvaluationResult:
    order = np.array([3, 0, 6, 1, 5, 2, 4])
    for start in range(0, 7, size):
        evaluated.update(collate(data(), order[start : start + size], TOKENIZERS, epoch=0, index=start))
    return evaluated.result()


def over_processes(world: int, count: int, max_tokens: int) -> list[EvaluationResult]:
    """What each of `world` processes reports, with a gather that hands every one the parts of all."""
    ranks = []
    for rank in range(world):
        ranks.append(evaluation())
        for batch in evaluation_loader(data(count), TOKENIZERS, max_tokens=max_tokens, rank=rank, world=world):
            ranks[-1].update(batch)
    parts: list = []
    for one in ranks:
        one.result(lambda local: parts.append(local) or [local])
    return [one.result(lambda local: parts) for one in ranks]


def loss_by_hand() -> float:
    """Nats per target token, sentence by sentence."""
    total, count = 0.0, 0
    for line in TARGET:
        ids = [int(symbol) + 3 for symbol in line.split()]
        for last, following in zip([1, *ids], [*ids, 2], strict=True):
            total -= float(LOGITS[last].log_softmax(dim=-1)[following])
            count += 1
    return total / count


def test_the_stubs_are_a_translator_and_a_search() -> None:
    assert isinstance(Bigrams(), Translator)
    assert isinstance(Copies(), Search)


@pytest.mark.parametrize("size", [1, 2, 5, 7])
def test_scores_and_order_do_not_depend_on_the_batches(size: int) -> None:
    result = in_batches(size, evaluation())
    assert result.hypotheses == SOURCE
    assert result.references == TARGET
    expected = score_translations(SOURCE, TARGET, "de")
    assert 20 < expected["bleu"].value < 90
    for metric in ("bleu", "chrf", "exact_match"):
        assert result.scores[metric].value == pytest.approx(expected[metric].value, abs=1e-9)
        assert result.scores[metric].signature == expected[metric].signature
    assert result.scores["exact_match"].value == pytest.approx(100 * 2 / 7)


@pytest.mark.parametrize("size", [1, 3, 7])
def test_loss_is_per_target_token_over_all_batches_and_not_smoothed(size: int) -> None:
    for smoothing in (0.0, 0.3):
        loss = in_batches(size, evaluation(smoothing)).scores["loss"]
        assert loss.value == pytest.approx(loss_by_hand(), rel=1e-6)
        assert loss.signature.endswith("tokens:42")


@pytest.mark.parametrize("count", [7, 1])
@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_number_of_processes_reports_the_scores_of_one(world: int, count: int) -> None:
    (alone,) = over_processes(1, count, 100)
    assert alone.hypotheses == SOURCE[:count]
    for result in over_processes(world, count, 12):
        assert result.hypotheses == alone.hypotheses
        assert result.references == alone.references
        for metric, score in alone.scores.items():
            assert result.scores[metric].value == pytest.approx(score.value, abs=1e-6 if metric == "loss" else 1e-9)


def test_a_placeholder_adds_nothing_and_never_meets_the_model() -> None:
    evaluated = evaluation()
    before = in_batches(3, evaluated)
    evaluated.model = None  # type: ignore[assignment]
    evaluated.update(collate(data(), np.empty(0, np.int64), TOKENIZERS, epoch=0, index=9))
    assert evaluated.result() == before


def test_reset_forgets_all_batches_and_nothing_scores_zero() -> None:
    evaluated = evaluation()
    first = in_batches(2, evaluated)
    evaluated.reset()
    empty = evaluated.result()
    assert (empty.hypotheses, empty.references) == ([], [])
    assert {metric: score.value for metric, score in empty.scores.items()} == dict.fromkeys(first.scores, 0.0)
    assert in_batches(2, evaluated) == first
