"""Loaders whose position is `(epoch, updates)`: the same for any number of processes, workers and prefetched batches.

One item of the training loader is a window: this process's share of the micro-batches of one update.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from crosslight.batches import Batch
from crosslight.data.batching import Rows, plan_evaluation, plan_windows
from crosslight.data.collate import Resampled, collate
from crosslight.data.encoded import EncodedPairs
from crosslight.tokenizers.base import Tokenizers

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""Signals that ask a run to end."""

Key = tuple[int, int, Rows]  # epoch, index of the micro-batch, its rows


class MicroBatches(Dataset[Batch]):
    """Makes the micro-batch that a key describes, in whichever process it is asked for."""

    def __init__(self, data: EncodedPairs, tokenizers: Tokenizers, resampled: Resampled | None = None) -> None:
        self.data, self.tokenizers, self.resampled = data, tokenizers, resampled

    def __getitem__(self, key: Key) -> Batch:
        epoch, index, rows = key
        return collate(self.data, rows, self.tokenizers, epoch=epoch, index=index, resampled=self.resampled)


def share_of(rank: int, world: int, virtual_ranks: int, accumulate: int) -> list[int]:
    """Which micro-batches of a window belong to a process, in order.

    A window has `accumulate * virtual_ranks` micro-batches; number `a * virtual_ranks + v` is virtual rank v's a-th.
    A process plays `virtual_ranks / world` virtual ranks, one after another.
    """
    mine = range(rank * virtual_ranks // world, (rank + 1) * virtual_ranks // world)
    return [a * virtual_ranks + v for v in mine for a in range(accumulate)]


class TrainingLoader:
    """The windows of an epoch from number `start` on. Lightning passes it through untouched.

    `plan(epoch)` gives the micro-batches of an epoch. How far training has got is counted by the training loop, not
    here: a count here would be ahead by what workers have fetched.
    """

    def __init__(
        self,
        data: EncodedPairs,
        tokenizers: Tokenizers,
        *,
        plan: Callable[[int], list[Rows]],
        rank: int,
        world: int,
        virtual_ranks: int,
        accumulate: int,
        num_workers: int,
        pin_memory: bool,
        resampled: Resampled | None = None,
        epoch: int = 0,
        start: int = 0,
    ) -> None:
        self.plan, self.epoch, self.start = plan, epoch, start
        self.window = virtual_ranks * accumulate
        self.share = share_of(rank, world, virtual_ranks, accumulate)
        self._planned: tuple[int, list[list[Rows]]] = (-1, [])
        self._inner = DataLoader(
            MicroBatches(data, tokenizers, resampled),
            batch_sampler=_Keys(self),
            collate_fn=list,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            worker_init_fn=deaf_to_signals if num_workers else None,
            pin_memory=pin_memory,
        )

    def windows(self) -> list[list[Rows]]:
        """All windows of the current epoch, for all processes."""
        if self._planned[0] != self.epoch:
            self._planned = self.epoch, plan_windows(self.plan(self.epoch), self.window)
        return self._planned[1]

    def __len__(self) -> int:
        return len(self.windows())

    def __iter__(self) -> Iterator[list[Batch]]:
        # lazily: epoch and start may be set between iter() and the first next()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING if self._inner.num_workers else [])
        try:  # a loader process begins with these signals blocked: it may get one before it can say what to do with it
            batches = iter(self._inner)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield from batches

    @property
    def sampler(self) -> "TrainingLoader":
        """Lightning calls `loader.sampler.set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0


def deaf_to_signals(worker: int) -> None:
    """In a loader process: leave signals that ask a run to end to the process that trains; it ends this one.

    A scheduler sends them to every process of a job. torch's own handler lets a loader process die of SIGTERM, and the
    process that trains with it, before anything is saved.
    """
    for number in (signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):  # not on macOS
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
        pass
    os._exit(0)


class _Keys:
    """The inner DataLoader's batch sampler: the keys of this process's micro-batches, window by window."""

    def __init__(self, loader: TrainingLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[list[Key]]:
        loader = self.loader
        for number, window in enumerate(loader.windows()[loader.start :], loader.start):
            yield [(loader.epoch, number * loader.window + k, window[k]) for k in loader.share]

    def __len__(self) -> int:
        return len(self.loader) - self.loader.start


def evaluation_loader(
    data: EncodedPairs, tokenizers: Tokenizers, *, max_tokens: int, rank: int = 0, world: int = 1
) -> Any:
    """Batches for validation, test and translation; every sentence is on exactly one process.

    All processes get equally many batches (the last may be a placeholder), so none waits for another for ever.
    """
    batches = plan_evaluation(data.source_lengths, max_tokens, data.target_lengths)
    batches += [np.empty(0, np.int64)] * (-len(batches) % world)
    keys = [(0, index, rows) for index, rows in enumerate(batches)][rank::world]
    return DataLoader(MicroBatches(data, tokenizers), sampler=keys, batch_size=None)  # type: ignore[arg-type]
