"""Which sentences meet in which micro-batch: complete, within both budgets, deterministic, with little padding."""

import math
from itertools import pairwise

import numpy as np
import pytest

from crosslight.data.batching import Batching, by_length, cut_by_budget, plan_epoch, plan_evaluation, plan_windows
from crosslight.errors import ConfigError


def lengths(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Source and target lengths like those of Multi30k in pieces: log-normal, about 14, sides alike but not equal."""
    rng = np.random.default_rng(seed)
    source = np.exp(rng.normal(2.6, 0.35, count))
    target = source * np.exp(rng.normal(0.1, 0.2, count))
    return np.maximum(2, source).astype(np.int32), np.maximum(2, target).astype(np.int32)


def blown_up(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets of one word, some of whose sources have 250 pieces, as a wrongly aligned corpus has them."""
    source = np.where(np.arange(count) % 10, 3, 250).astype(np.int32)
    return source, np.full(count, 2, np.int32)


def narrow(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def padded(side: np.ndarray, batches: list[np.ndarray]) -> int:
    return sum(int(side[rows].max()) * len(rows) for rows in batches)


def plain(batches: list[np.ndarray]) -> list[list[int]]:
    return [rows.tolist() for rows in batches]


@pytest.mark.parametrize("make", [lengths, lambda count: lengths(count)[::-1], blown_up])
@pytest.mark.parametrize("budget", [300, 1000, 5000])
def test_every_sentence_is_in_exactly_one_batch_and_both_sides_keep_the_budget(make, budget: int) -> None:
    source, target = make(500)
    batches = plan_epoch(source, target, budget, seed=1, epoch=0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    for side in (source, target):
        assert all(padded(side, [rows]) <= budget for rows in batches)


@pytest.mark.parametrize("budget", [60, 200, 5000])
def test_batches_are_well_filled(budget: int) -> None:
    source, target = lengths(500)
    batches = plan_epoch(source, target, budget, seed=1, epoch=0)
    costs = [max(padded(side, [rows]) for side in (source, target)) for rows in batches]
    assert len(batches) <= sum(costs) / budget * 1.4 + 1


def test_no_sentence_more_would_have_fitted_into_a_batch() -> None:
    source, target = lengths(300)
    order = by_length(np.arange(300), source, target, 150)
    batches = cut_by_budget(order, np.maximum(source, target), 150)
    assert np.concatenate(batches).tolist() == order.tolist()
    for rows, following in pairwise(batches):
        more = np.append(rows, following[0])
        assert max(padded(side, [more]) for side in (source, target)) > 150


def test_long_sources_of_short_targets_do_not_swell_a_batch() -> None:
    """By the target alone, 250 pairs of 2 tokens fit 500; with one source of 250 pieces that would be 62,500."""
    source, target = blown_up(300)
    swollen = cut_by_budget(np.arange(300), target, 500)
    assert max(padded(source, [rows]) for rows in swollen) == 62_500
    batches = plan_epoch(source, target, 500, seed=1, epoch=0)
    assert max(padded(source, [rows]) for rows in batches) <= 500
    assert len(batches) <= 15 + 4, "two long ones at a time, the short ones as densely as before"


def test_a_sentence_above_the_budget_gets_a_batch_of_its_own() -> None:
    """Case D04: the budget is 50, one sentence has 60."""
    target = narrow(3, 60, 5, 4, 51, 50)
    for source in (target, np.full(6, 2, np.int32)):
        batches = plan_epoch(source, target, 50, seed=1, epoch=0)
        assert [rows for rows in plain(batches) if {1, 4, 5} & set(rows) and len(rows) > 1] == []
        assert sorted(row for rows in plain(batches) for row in rows) == list(range(6))
    by_source = plan_epoch(target, np.full(6, 2, np.int32), 50, seed=1, epoch=0)
    assert sorted(rows for rows in plain(by_source) if 1 in rows or 4 in rows) == [[1], [4]]
    assert plain(plan_evaluation(target, 50)) == [[1], [4], [5], [2, 3, 0]]


def test_a_batch_costs_its_longest_times_its_size() -> None:
    side = narrow(9, 7, 7, 4, 2, 2, 2)
    assert plain(cut_by_budget(np.arange(7), side, 16)) == [[0], [1, 2], [3, 4, 5, 6]]
    assert cut_by_budget(np.arange(0), side, 16) == []


def test_the_widest_row_counts_wherever_it_stands() -> None:
    def cut(*widths: int) -> list[list[int]]:
        return plain(cut_by_budget(np.arange(len(widths)), narrow(*widths), 12))

    assert cut(2, 2, 2, 2, 2, 2) == [[0, 1, 2, 3, 4, 5]]
    assert cut(2, 2, 6, 2, 3, 4) == [[0, 1], [2, 3], [4, 5]]
    assert cut(40, 1, 1, 1, 12, 13) == [[0], [1, 2, 3], [4], [5]]


@pytest.mark.parametrize("max_tokens", [1, 60, 500, 10**6])
def test_the_order_is_that_of_a_plain_sort_by_strips(max_tokens: int) -> None:
    """Strips of about equally many target tokens, the longest first; in them sources rise and fall in turn."""
    rng = np.random.default_rng(4)
    source, target = (rng.integers(1, 40, 400).astype(np.int32) for _ in range(2))
    source[:3], target[:3] = 300, (256, 257, 700)  # not cut to a byte
    rows = rng.permutation(400)[:350]
    widths = [max(int(source[row]), int(target[row])) for row in rows]
    num_strips = max(1.0, 1.5 * math.sqrt(sum(widths) / max_tokens))
    total = sum(int(target[row]) for row in rows)

    def key(row: int) -> tuple[int, int]:
        shorter = sum(int(target[other]) for other in rows if target[other] < target[row])
        strip = int(shorter * num_strips / total)
        return -strip, int(source[row]) * (-1 if strip % 2 else 1)

    ordered = by_length(rows, source, target, max_tokens).tolist()
    assert ordered == sorted(rows.tolist(), key=key)
    assert len({key(row)[0] for row in rows}) == 1 or max_tokens < 10**6


def test_sentences_of_equal_lengths_on_both_sides_keep_their_order() -> None:
    same = np.full(50, 7, np.int32)
    rows = np.random.default_rng(1).permutation(50)
    assert by_length(rows, same, same, 100).tolist() == rows.tolist()


def test_both_sides_are_padded_about_equally_little() -> None:
    source, target = lengths(20_000)
    plan = plan_epoch(source, target, 2000, seed=1, epoch=0)
    shares = [1 - side.sum() / sum(padded(side, [rows]) for rows in plan) for side in (source, target)]
    assert max(shares) < 0.07
    assert max(shares) < 2.5 * min(shares)


def test_an_epoch_of_chosen_rows_holds_just_them_as_often_as_they_are_given() -> None:
    source, target = lengths(100)
    rows = np.concatenate([np.arange(10, 40), np.arange(20, 30), np.array([99])])
    batches = plan_epoch(source, target, 120, seed=1, epoch=0, rows=rows)
    assert sorted(np.concatenate(batches).tolist()) == sorted(rows.tolist())
    assert all(padded(side, [chosen]) <= 120 for side in (source, target) for chosen in batches)
    assert plan_epoch(source, target, 120, seed=1, epoch=0, rows=np.empty(0, np.int64)) == []
    everything = plan_epoch(source, target, 120, seed=1, epoch=3, rows=np.arange(100))
    assert plain(everything) == plain(plan_epoch(source, target, 120, seed=1, epoch=3))


def test_planning_changes_none_of_its_arguments() -> None:
    source, target = lengths(100)
    rows = np.arange(50)[::-1].copy()
    before = source.copy(), target.copy(), rows.copy()
    plan_epoch(source, target, 120, seed=1, epoch=0, rows=rows)
    assert all((one == other).all() for one, other in zip(before, (source, target, rows), strict=True))


def test_the_plan_is_a_function_of_seed_and_epoch() -> None:
    source, target = lengths(2000)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return plain(plan_epoch(source, target, 500, seed=seed, epoch=epoch))

    assert plan(1, 2) == plan(1, 2)
    plans = [{frozenset(rows) for rows in plan(*which)} for which in [(1, 2), (1, 3), (2, 2), (2, 1)]]
    assert all(len(one & other) < len(one) / 2 for i, one in enumerate(plans) for other in plans[:i])


def test_batches_come_in_random_order_of_length() -> None:
    source, target = lengths(2000)
    longest = [int(target[rows].max()) for rows in plan_epoch(source, target, 200, seed=1, epoch=0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.3


def test_sentences_of_like_length_meet_so_that_little_is_padded() -> None:
    source, target = lengths(5000)
    rng = np.random.default_rng(2)
    batches = plan_epoch(source, target, 1000, seed=1, epoch=0)
    unsorted = np.array_split(rng.permutation(5000), len(batches))
    share, share_unsorted = (1 - target.sum() / padded(target, plan) for plan in (batches, unsorted))
    assert share < 0.07
    assert share_unsorted > 0.4
    assert 1 - source.sum() / padded(source, batches) < 0.5 * (1 - source.sum() / padded(source, unsorted))


def test_windows_take_the_batches_in_order_and_fill_up_with_empty_ones() -> None:
    batches = [np.array([i]) for i in range(7)]
    windows = plan_windows(batches, 3)
    assert [plain(window) for window in windows] == [[[0], [1], [2]], [[3], [4], [5]], [[6], [], []]]
    assert [len(window) for window in plan_windows(batches[:6], 3)] == [3, 3]
    assert plan_windows([], 3) == []


def test_evaluation_starts_with_the_longest_sources() -> None:
    source, _ = lengths(200)
    batches = plan_evaluation(source, 120)
    order = np.concatenate(batches)
    assert sorted(order.tolist()) == list(range(200))
    assert (np.diff(source[order]) <= 0).all()
    assert all(padded(source, [rows]) <= 120 for rows in batches)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_tokens": 0}, "batching.max_tokens: 0 is no budget; a usual one is 4096"),
        ({"eval_max_tokens": -1}, "batching.eval_max_tokens: -1 is no budget; a usual one is 4096"),
        ({"num_workers": -1}, "batching.num_workers: -1 is no number of processes; 0 uses none"),
        ({"shuffle_buffer": 0}, "batching.shuffle_buffer: 0 holds no pair; try 100000, or null"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changed: dict[str, int], message: str) -> None:
    settings = {"max_tokens": 9, "eval_max_tokens": 9, "num_workers": 0, "shuffle_buffer": None}
    Batching(**settings)
    with pytest.raises(ConfigError) as error:
        Batching(**{**settings, **changed})
    assert str(error.value) == message
