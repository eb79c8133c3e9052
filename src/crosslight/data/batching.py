"""Which sentences form which micro-batch: a pure function of the lengths, the seed and the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crosslight.errors import ConfigError

Rows = NDArray[np.int64]
Lengths = NDArray[np.int32]

LONGEST = 2**16 - 1

STRIPS = 1.5
"""Strips a square root of the number of batches; measured on Multi30k and WMT (benchmarks/padding.py)."""


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How text is cut into batches.

    `max_tokens` is the budget of one micro-batch, for each side, padding included (with subword sampling a batch may be
    above it by what its pieces grow); `auto` is the most that fits into memory, found before training (runs/budget.py).
    `eval_max_tokens` is the same for validation and translation. `num_workers` loader processes prepare batches; 0
    prepares them in line.
    `shuffle_buffer` trains on a stream through a buffer of so many pairs, for corpora that are not worth preparing;
    null prepares the whole corpus first, which shuffles better.
    """

    max_tokens: int | Literal["auto"]
    eval_max_tokens: int
    num_workers: int
    shuffle_buffer: int | None

    def __post_init__(self) -> None:
        for key in ("max_tokens", "eval_max_tokens"):
            value = getattr(self, key)
            if isinstance(value, int) and value < 1:
                raise ConfigError(f"batching.{key}: {value} is no budget; a usual one is 4096")
        if self.num_workers < 0:
            raise ConfigError(f"batching.num_workers: {self.num_workers} is no number of processes; 0 uses none")
        if self.shuffle_buffer is not None and self.shuffle_buffer < 1:
            raise ConfigError(f"batching.shuffle_buffer: {self.shuffle_buffer} holds no pair; try 100000, or null")

    @property
    def budget(self) -> int:
        """`max_tokens` as a number, which it is once the trainer has one."""
        assert isinstance(self.max_tokens, int)
        return self.max_tokens


def cut_by_budget(order: Rows, widths: Lengths, max_tokens: int) -> list[Rows]:
    """Cut `order` into batches within the budget: a batch of n costs n times its widest row, padding included.

    A row above the budget gets a batch of its own.
    """
    batches, start = [], 0
    sorted_widths = widths[order]
    while start < len(order):
        size = max(1, max_tokens // int(sorted_widths[start]))
        costs = (
            np.maximum.accumulate(sorted_widths[start : start + size]) * np.arange(1, size + 1)[: len(order) - start]
        )
        too_dear = costs > max_tokens
        size = max(1, int(too_dear.argmax())) if too_dear.any() else size
        batches.append(order[start : start + size])
        start += size
    return batches


def by_length(rows: Rows, source_lengths: Lengths, target_lengths: Lengths, max_tokens: int) -> Rows:
    """The rows in an order in which neighbours are alike on both sides; rows of like length keep their order.

    Sort-tile-recursive packing (Leutenegger et al. 1997): by target length into strips, in each strip by source length,
    upwards and downwards in turn. Strips are such that the batches cut from them pad both sides about equally little.
    """
    target = np.minimum(target_lengths[rows], LONGEST)
    source = np.minimum(source_lengths[rows], LONGEST).astype(np.uint16)
    tokens = np.bincount(target) * np.arange(int(target.max(initial=0)) + 1)
    num_batches = np.maximum(source_lengths[rows], target_lengths[rows]).sum() / max_tokens
    num_strips = max(1.0, STRIPS * float(np.sqrt(num_batches)))
    strips = ((np.cumsum(tokens) - tokens) * (num_strips / max(1, tokens.sum()))).astype(np.int64)  # by target length
    strip = np.minimum(strips, LONGEST).astype(np.uint16)[target]
    source[strip % 2 == 1] = LONGEST - source[strip % 2 == 1]
    by_source = np.argsort(source, kind="stable")  # 16 bits: by radix, in linear time
    return rows[by_source[np.argsort(LONGEST - strip[by_source], kind="stable")]]


def plan_epoch(
    source_lengths: Lengths,
    target_lengths: Lengths,
    max_tokens: int,
    *,
    seed: int | Sequence[int],
    epoch: int,
    rows: Rows | None = None,
) -> list[Rows]:
    """The micro-batches of one epoch in training order; every sentence (or each of `rows`) is in exactly one.

    Sentences of like length are batched together, at most `max_tokens` padded tokens of each side. The order of the
    batches, and which sentences of like lengths meet in one, is drawn anew each epoch.
    """
    rng = np.random.default_rng([*([seed] if isinstance(seed, int) else seed), epoch])
    shuffled = rng.permutation(len(target_lengths) if rows is None else rows)
    order = by_length(shuffled, source_lengths, target_lengths, max_tokens)
    batches = cut_by_budget(order, np.maximum(source_lengths, target_lengths), max_tokens)
    return [batches[i] for i in rng.permutation(len(batches))]


def rows_of_epoch(sizes: Sequence[int], shares: Sequence[float], *, seed: int, epoch: int) -> Rows:
    """The rows of an epoch that mixes parts: as many in all as there are pairs, of each part its share.

    Part k's rows follow those of part k - 1. Each part goes on where its last epoch ended, in an endless sequence of
    seeded passes: no pair comes again before all others of its part have come.
    """
    total, first, chosen = sum(sizes), 0, []
    for part, (size, share) in enumerate(zip(sizes, shares, strict=True)):
        # not epoch * round(…): a share below half a pair an epoch would never come
        position = round(epoch * total * share)
        count = round((epoch + 1) * total * share) - position
        while count and size:
            number, start = divmod(position, size)
            taken = np.random.default_rng([seed, part, number]).permutation(size)[start : start + count]
            chosen.append(first + taken)
            position, count = position + len(taken), count - len(taken)
        first += size
    return np.concatenate([np.empty(0, np.int64), *chosen])


def plan_windows(batches: list[Rows], size: int) -> list[list[Rows]]:
    """Groups of `size` micro-batches, one an update; empty ones fill up the last."""
    missing = -len(batches) % size
    padded = batches + [np.empty(0, np.int64)] * missing
    return [padded[i : i + size] for i in range(0, len(padded), size)]


def plan_evaluation(source_lengths: Lengths, max_tokens: int, target_lengths: Lengths | None = None) -> list[Rows]:
    """Batches for search and, with `target_lengths`, for scoring: within the budget on each side.

    Longest sources come first: an out-of-memory shows at once, and progress speeds up.
    """
    widths = source_lengths if target_lengths is None else np.maximum(source_lengths, target_lengths)
    return cut_by_budget(np.argsort(-source_lengths, kind="stable"), widths, max_tokens)
