"""Which sentences meet in which micro-batch: complete, within the budget, deterministic, with little padding."""

import numpy as np
import pytest

from crosslight.data.batching import cut_by_budget, plan_epoch, plan_evaluation, plan_windows


def lengths(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Source and target lengths like those of Multi30k in pieces: log-normal, about 14, sides alike but not equal."""
    rng = np.random.default_rng(seed)
    source = np.exp(rng.normal(2.6, 0.35, count))
    target = source * np.exp(rng.normal(0.1, 0.2, count))
    return np.maximum(2, source).astype(np.int64), np.maximum(2, target).astype(np.int64)


def padded(side: np.ndarray, batches: list[np.ndarray]) -> int:
    return sum(int(side[rows].max()) * len(rows) for rows in batches)


@pytest.mark.parametrize("budget", [60, 200, 5000])
def test_every_sentence_is_in_exactly_one_batch_within_the_budget(budget: int) -> None:
    source, target = lengths(500)
    batches = plan_epoch(source, target, budget, seed=1, epoch=0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    assert all(padded(target, [rows]) <= budget for rows in batches)
    assert len(batches) <= padded(target, batches) / budget * 1.4 + 1, "batches are well filled"


def test_a_sentence_above_the_budget_gets_a_batch_of_its_own() -> None:
    target = np.array([3, 60, 5, 4, 51, 50])
    batches = plan_epoch(target, target, 50, seed=1, epoch=0)
    assert sorted(rows.tolist() for rows in batches if len(rows) == 1) == [[1], [4], [5]]
    assert sorted(next(rows for rows in batches if len(rows) > 1).tolist()) == [0, 2, 3]
    assert [rows.tolist() for rows in plan_evaluation(target, 50)] == [[1], [4], [5], [2, 3, 0]]


def test_the_plan_is_a_function_of_seed_and_epoch() -> None:
    source, target = lengths(2000)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [rows.tolist() for rows in plan_epoch(source, target, 500, seed=seed, epoch=epoch)]

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
    assert share < 0.02
    assert share_unsorted > 0.4
    assert 1 - source.sum() / padded(source, batches) < 0.5 * (1 - source.sum() / padded(source, unsorted))


def test_a_batch_costs_its_longest_times_its_size() -> None:
    side = np.array([9, 7, 7, 4, 2, 2, 2])
    assert [rows.tolist() for rows in cut_by_budget(side, np.arange(7), 16)] == [[0], [1, 2], [3, 4, 5, 6]]
    assert cut_by_budget(side, np.arange(0), 16) == []


def test_windows_take_the_batches_in_order_and_fill_up_with_empty_ones() -> None:
    batches = [np.array([i]) for i in range(7)]
    windows = plan_windows(batches, 3)
    assert [[rows.tolist() for rows in window] for window in windows] == [
        [[0], [1], [2]],
        [[3], [4], [5]],
        [[6], [], []],
    ]
    assert [len(window) for window in plan_windows(batches[:6], 3)] == [3, 3]
    assert plan_windows([], 3) == []


def test_evaluation_starts_with_the_longest_sources() -> None:
    source, _ = lengths(200)
    batches = plan_evaluation(source, 120)
    order = np.concatenate(batches)
    assert sorted(order.tolist()) == list(range(200))
    assert (np.diff(source[order]) <= 0).all()
    assert all(padded(source, [rows]) <= 120 for rows in batches)
