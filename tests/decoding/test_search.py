"""Greedy and beam search on table-driven stubs, against full enumeration and hand values (case H02)."""

import math

import pytest
import torch
from table_step import BOS, EOS, TableState, TableStep, every_hypothesis, random_table, ranked

from crosslight.decoding.beam import BeamSearch
from crosslight.decoding.greedy import GreedySearch
from crosslight.decoding.protocols import Hypothesis, Search, State
from crosslight.decoding.scores import length_penalty
from crosslight.errors import ConfigError

ALPHAS = [0.0, 0.6, 1.0, -1.0, -2.0]


def beam(size: int, alpha: float = 0.0, n_best: int = 1, factor: float = 1.0, extra: int = 0) -> BeamSearch:
    return BeamSearch(
        beam_size=size,
        n_best=n_best,
        length_penalty=alpha,
        length_offset=5.0,
        max_len_factor=factor,
        max_len_extra=extra,
    )


def greedy(alpha: float = 0.0) -> GreedySearch:
    return GreedySearch(length_penalty=alpha, length_offset=5.0, max_len_factor=1.0, max_len_extra=0)


def run(search: Search, step: TableStep, limits: list[int]) -> list[list[Hypothesis]]:
    return search(step, TableState.start(len(limits)), bos_id=BOS, eos_id=EOS, max_lengths=torch.tensor(limits))


def assert_same(found: list[Hypothesis], expected: list[tuple[tuple[int, ...], float, float]]) -> None:
    assert [h.ids for h in found] == [ids for ids, _, _ in expected]
    assert [h.log_prob for h in found] == pytest.approx([total for _, total, _ in expected], abs=1e-5)
    assert [h.score for h in found] == pytest.approx([score for _, _, score in expected], abs=1e-5)


def h02(sentence: int, prefix: tuple[int, ...]) -> list[float]:
    """Case H02 over {end, a}."""
    end = {0: 0.4, 1: 0.05, 2: 0.99}[len(prefix)]
    return [math.log(end), math.log(1 - end)]


def test_with_plain_length_the_case_has_its_own_numbers() -> None:
    """At power -1 the longer hypothesis loses, -1.72 against -0.92."""
    search = BeamSearch(
        beam_size=2, n_best=2, length_penalty=-1.0, length_offset=0.0, max_len_factor=1.0, max_len_extra=0
    )
    (found,) = run(search, TableStep(h02), [3])
    longer = math.log(0.6 * 0.95 * 0.99)
    assert_same(found, [((), math.log(0.4), math.log(0.4)), ((1, 1), longer, 3 * longer)])
    assert 3 * longer == pytest.approx(-1.72, abs=0.005)


# With Wu et al. the shorter one wins only below -1.63.
@pytest.mark.parametrize(
    ("alpha", "first", "scores"),
    [
        (0.0, (1, 1), [-0.5722, -0.9163]),
        (0.6, (1, 1), [-0.5722 / (8 / 6) ** 0.6, -0.9163]),
        (1.0, (1, 1), [-0.5722 * 6 / 8, -0.9163]),
        (-1.0, (1, 1), [-0.5722 * 8 / 6, -0.9163]),
        (-2.0, (), [-0.9163, -0.5722 * 64 / 36]),
    ],
)
@pytest.mark.parametrize("n_best", [1, 2])
def test_the_first_hypothesis_to_end_does_not_stop_the_search(
    alpha: float, first: tuple[int, ...], scores: list[float], n_best: int
) -> None:
    (found,) = run(beam(2, alpha, n_best), TableStep(h02), [3])
    assert [h.ids for h in found] == [first, () if first else (1, 1)][:n_best]
    assert [h.score for h in found] == pytest.approx(scores[:n_best], abs=1e-4)
    assert {h.ids: h.log_prob for h in found}.get((1, 1), -0.5722) == pytest.approx(-0.5722, abs=1e-4)


def test_a_long_hypothesis_may_still_overtake_by_its_length() -> None:
    """At the first end (0.6) the other (0.4) is behind, whatever its next token; twelve tokens long it is ahead."""
    table = {0: [math.log(0.6), math.log(0.4)], 11: [-1e-4, -9.0]}
    (found,) = run(beam(2, 1.0), TableStep(lambda _, prefix: table.get(len(prefix), [-9.0, -1e-4])), [12])
    assert found[0].ids == (1,) * 11
    assert found[0].score == pytest.approx(math.log(0.4) / (17 / 6), abs=1e-3)


def test_a_hypothesis_that_ends_takes_its_place_with_it() -> None:
    """After the end at step 1 one place of two is left, so of `1 1` and `1 2` only the likelier goes on."""
    table = {(): (0.5, 0.3, 0.2), (1,): (0.1, 0.5, 0.4), (1, 1): (0.2, 0.4, 0.4), (1, 2): (0.9, 0.05, 0.05)}
    finished = (0.2, 0.4, 0.4)  # what rows without a hypothesis are given; it must not matter
    step = TableStep(lambda _, prefix: [math.log(p) for p in table.get(prefix, finished)])
    (found,) = run(beam(2, n_best=2), step, [3])
    assert [h.ids for h in found] == [(), (1, 1)]
    assert [h.log_prob for h in found] == pytest.approx([math.log(0.5), math.log(0.3 * 0.5 * 0.2)], abs=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("n_best", [1, 3, 40])
def test_wide_beam_finds_the_best_of_all_sequences(alpha: float, n_best: int) -> None:
    limits = [4, 2, 3]
    for seed in range(8):
        table = random_table(seed)
        found = run(beam(40, alpha, n_best), TableStep(table), limits)
        for sentence, limit in enumerate(limits):
            assert_same(found[sentence], ranked(table, sentence, limit, alpha)[:n_best])


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", [2, 3])
def test_stopping_early_never_changes_the_n_best(alpha: float, size: int) -> None:
    """With n_best = beam_size no place may be given up early, so its head is what n_best=1 must find too."""
    limits = [7, 3, 5]
    for seed in range(10):
        full, short = TableStep(random_table(seed)), TableStep(random_table(seed))
        everything = run(beam(size, alpha, size), full, limits)
        assert run(beam(size, alpha, 1), short, limits) == [found[:1] for found in everything]
        assert sum(short.rows) <= sum(full.rows)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_beam_of_one_is_greedy(alpha: float) -> None:
    limits = [6, 1, 9, 4]
    for seed in range(25):
        table = random_table(seed, vocab=3)
        assert run(beam(1, alpha), TableStep(table), limits) == run(greedy(alpha), TableStep(table), limits)


def test_greedy_takes_the_likeliest_token_at_each_step() -> None:
    for seed in range(10):
        table, written = random_table(seed), ()
        while (token := max(range(4), key=lambda t: table(0, written)[t])) != EOS and len(written) + 1 < 6:
            written = (*written, token)
        ((found,),) = run(greedy(), TableStep(table), [6])
        assert found.ids == written
        assert found.log_prob == pytest.approx(dict(every_hypothesis(table, 0, 6))[written], abs=1e-5)


@pytest.mark.parametrize("search", [greedy(0.6), beam(3, 0.6, 3)])
def test_at_its_greatest_length_a_hypothesis_ends_with_its_true_score(search: Search) -> None:
    """The stub hardly ever wants to end: log p(EOS) is -9, and the other two symbols share the rest."""
    other = math.log((1 - math.exp(-9)) / 2)
    limits = [3, 1, 5]
    found = run(search, TableStep(lambda sentence, prefix: [-9.0, other - 1e-3 * len(prefix), other]), limits)
    for hypotheses, limit in zip(found, limits, strict=True):
        assert max(len(h.ids) + 1 for h in hypotheses) == limit
        best = max(hypotheses, key=lambda h: len(h.ids))
        assert best.log_prob == pytest.approx((limit - 1) * other - 9, abs=1e-2)
        assert best.score == pytest.approx(best.log_prob / ((5 + limit) / 6) ** 0.6)


@pytest.mark.parametrize("size", [None, 2])
def test_finished_sentences_leave_the_batch(size: int | None) -> None:
    """Sentence s surely ends after s tokens, so step t is asked only for the sentences from t on."""

    def table(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        end = len(prefix) >= sentence
        return [0.0 if end else -30.0, -30.0 if end else 0.0, -31.0]

    step = TableStep(table)
    found = run(greedy() if size is None else beam(size), step, [9] * 4)
    assert [hypotheses[0].ids for hypotheses in found] == [(1,) * s for s in range(4)]
    assert step.sentences == [{0, 1, 2, 3}, {1, 2, 3}, {2, 3}, {3}]
    assert step.rows == [4, 3 * (size or 1), 2 * (size or 1), size or 1]


@pytest.mark.parametrize("search", [greedy(), beam(2), beam(3, 1.0, 2)])
def test_a_model_that_gives_nan_does_not_keep_the_search_for_ever(search: Search) -> None:
    step = TableStep(lambda sentence, prefix: [math.nan] * 4)

    def guarded(tokens: torch.Tensor, state: TableState) -> tuple[torch.Tensor, TableState]:
        assert len(step.rows) < 5, "the search went on past its greatest length"
        return step(tokens, state)

    found = search(guarded, TableState.start(2), bos_id=BOS, eos_id=EOS, max_lengths=torch.tensor([5, 3]))
    assert [bool(hypotheses) for hypotheses in found] == [True, True]


def test_the_stub_is_a_state_and_an_empty_batch_needs_no_step() -> None:
    assert isinstance(TableState.start(1), State)
    step = TableStep(h02)
    for search in (greedy(), beam(2)):
        no_sentences = torch.empty(0, dtype=torch.long)
        assert search(step, TableState.start(0), bos_id=BOS, eos_id=EOS, max_lengths=no_sentences) == []
    assert step.rows == []


@pytest.mark.parametrize(("length", "alpha", "expected"), [(1, 0.6, 1.0), (13, 2.0, 9.0), (7, -1.0, 0.5), (8, 0.0, 1)])
def test_length_penalty_is_equation_14_of_wu_et_al(length: int, alpha: float, expected: float) -> None:
    assert length_penalty(length, alpha) == pytest.approx(expected, abs=1e-12)


def test_greatest_lengths_follow_the_source_and_stay_within_the_limit() -> None:
    search, lengths = beam(1, factor=1.5, extra=2), torch.tensor([0, 1, 4, 100])
    assert search.max_lengths(lengths, None).tolist() == [2, 3, 8, 152]
    assert search.max_lengths(lengths, 32).tolist() == [2, 3, 8, 32]
    assert beam(1, factor=0.5).max_lengths(lengths, 32).tolist() == [1, 1, 2, 32]


@pytest.mark.parametrize(("size", "n_best"), [(0, 0), (2, 3), (2, 0)])
def test_more_results_than_the_beam_is_wide_are_refused_by_name(size: int, n_best: int) -> None:
    with pytest.raises(ConfigError, match=rf"decode\.n_best.*n_best={n_best}.*beam_size={size}"):
        beam(size, n_best=n_best)
