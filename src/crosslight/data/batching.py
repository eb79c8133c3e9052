"""Which sentences form which micro-batch: a pure function of the lengths, the seed and the epoch."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def cut_by_budget(lengths: Rows, order: Rows, max_tokens: int) -> list[Rows]:
    """Cut `order`, which must run from the longest sequence to the shortest, into batches within the budget.

    The first of a batch is its longest, so a batch of n costs `n * lengths[first]` tokens, padding included. A sequence
    above the budget gets a batch of its own.
    """
    batches, start = [], 0
    while start < len(order):
        size = max(1, max_tokens // int(lengths[order[start]]))
        batches.append(order[start : start + size])
        start += size
    return batches


def plan_epoch(source_lengths: Rows, target_lengths: Rows, max_tokens: int, *, seed: int, epoch: int) -> list[Rows]:
    """The micro-batches of one epoch in training order; every sentence is in exactly one.

    Sentences of like length are batched together (target first, for the budget counts padded target tokens). The order
    of the batches, and which sentences of equal lengths meet in one, is drawn anew each epoch.
    """
    rng = np.random.default_rng([seed, epoch])
    shuffled = rng.permutation(len(target_lengths))
    order = shuffled[np.lexsort((-source_lengths[shuffled], -target_lengths[shuffled]))]
    batches = cut_by_budget(target_lengths, order, max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def plan_windows(batches: list[Rows], size: int) -> list[list[Rows]]:
    """Groups of `size` micro-batches, one an update; empty ones fill up the last."""
    missing = -len(batches) % size
    padded = batches + [np.empty(0, np.int64)] * missing
    return [padded[i : i + size] for i in range(0, len(padded), size)]


def plan_evaluation(source_lengths: Rows, max_tokens: int) -> list[Rows]:
    """Batches for search and scoring, longest sources first: an out-of-memory shows at once, and progress speeds up."""
    return cut_by_budget(source_lengths, np.argsort(-source_lengths, kind="stable"), max_tokens)
