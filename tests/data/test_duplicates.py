"""Repeated pairs are found as a set of Python finds them, in a few bytes a pair."""

import numpy as np
import pyarrow as pa
import pytest

from crosslight.data.corpus import SCHEMA
from crosslight.data.duplicates import SeenBefore, pair_hashes


def by_set(calls: list[np.ndarray]) -> list[list[bool]]:
    """What SeenBefore says, from a set."""
    seen: set[int] = set()
    answers = []
    for call in calls:
        answer = []
        for value in call.tolist():
            answer.append(value in seen)
            seen.add(value)
        answers.append(answer)
    return answers


def table(source: list[str], target: list[str]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(source, pa.string()), pa.array(target, pa.string())], schema=SCHEMA)


@pytest.mark.parametrize("values", [3, 50, 5_000, 10**6])
def test_repeats_are_those_that_a_set_finds(values: int) -> None:
    rng = np.random.default_rng(values)
    calls = [rng.integers(0, values, size, np.uint64) for size in rng.integers(0, 400, 120)]
    seen = SeenBefore()
    assert [seen(call).tolist() for call in calls] == by_set(calls)


def test_the_largest_and_the_smallest_hash_are_remembered() -> None:
    ends = np.array([2**64 - 1, 0, 2**63], np.uint64)
    seen = SeenBefore()
    assert seen(ends).tolist() == [False] * 3
    assert seen(np.array([1, 2**63, 2**64 - 1, 2**64 - 2, 0], np.uint64)).tolist() == [False, True, True, False, True]


def test_a_call_leaves_its_argument_as_it_is() -> None:
    hashes = np.array([5, 1, 5, 3], np.uint64)
    SeenBefore()(hashes)
    assert hashes.tolist() == [5, 1, 5, 3]


def test_nothing_at_all_is_no_repeat() -> None:
    seen, nothing = SeenBefore(), np.empty(0, np.uint64)
    assert seen(nothing).tolist() == []
    assert seen(np.array([4], np.uint64)).tolist() == [False]
    assert seen(nothing).tolist() == []
    assert seen(np.array([4], np.uint64)).tolist() == [True]


def test_memory_is_eight_bytes_a_distinct_hash_in_few_arrays() -> None:
    rng = np.random.default_rng(1)
    seen, distinct = SeenBefore(), set()
    for _ in range(300):
        call = rng.integers(0, 40_000, 500, np.uint64)
        distinct.update(call.tolist())
        seen(call)
        sizes = [len(level) for level in seen._levels]
        assert sum(sizes) == len(distinct)
        assert len(sizes) <= 17, "a logarithm of the number: each array is more than twice the next"


def test_a_pair_is_the_same_only_if_both_sides_are() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("c", "ab"), ("ab", "C"), ("", "abc"), ("abc", ""), ("ab", "c ")]
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    hashes = pair_hashes(table(sources, targets))
    assert hashes.dtype == np.uint64
    assert len(set(hashes.tolist())) == len(pairs)
    assert pair_hashes(table(sources[::-1], targets[::-1])).tolist() == hashes[::-1].tolist(), "no state between calls"
    assert pair_hashes(table([], [])).tolist() == []


def test_random_short_text_has_a_hash_of_its_own() -> None:
    sources = [f"{i % 300} {i // 300}" for i in range(60_000)]
    targets = [f"{i % 7}" for i in range(60_000)]
    assert len(set(pair_hashes(table(sources, targets)).tolist())) == 60_000
