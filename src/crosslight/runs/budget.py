"""`batching.max_tokens=auto`: the largest micro-batch that fits into memory, measured with the model that is trained.

As Marian's `--mini-batch-fit` does: run micro-batches of the worst shapes, forward, backward and a step. Memory grows
linearly with the rows of one width, so two sizes tell the rest. On a GPU the result is tried, and halved until it fits.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.autograd.graph import saved_tensors_hooks

from crosslight.batches import Batch
from crosslight.data.batching import plan_epoch
from crosslight.data.collate import Resampled, collate
from crosslight.data.encoded import EncodedPairs
from crosslight.errors import ConfigError
from crosslight.runs.memory import memory_limit
from crosslight.runs.trainer import TrainerRecipe
from crosslight.tasks.base import Task
from crosslight.tokenizers.base import Tokenizers

LEAST_UPDATES = 50
"""An epoch has at least so many: with fewer, a small corpus would be learnt from too seldom, however much would fit."""

START = 4096
"""Tokens of the first trial on a GPU: enough that rounding by the allocator does not show."""

Measure = Callable[[int, int], int]
"""Bytes in use at the worst moment with a micro-batch of so many rows of so many tokens on both sides."""


@dataclass(frozen=True)
class Budget:
    """The number that was found, and in words what keeps it from being larger."""

    max_tokens: int
    because: str


@dataclass(frozen=True)
class Shapes:
    """What pairs are like: the longest and the shortest that may meet, and the tokens of an epoch (None: not known).

    `growth` is by how much subword sampling makes a micro-batch larger than it was planned.
    """

    longest: int
    shortest: int
    tokens: int | None
    growth: float = 1.0


def shapes_of(train: EncodedPairs) -> Shapes:
    """The shapes of prepared pairs; a pair is as long as its longer side."""
    lengths = np.maximum(train.source_lengths, train.target_lengths)
    return Shapes(int(lengths.max()), int(lengths.min()), int(lengths.sum(dtype=np.int64)))


def growth_of(data: EncodedPairs, tokenizers: Tokenizers, resampled: Resampled) -> float:
    """The most by which sampled pieces overfill a micro-batch, on up to 2,000 pairs such as those of training."""
    rows = np.unique(np.linspace(0, len(data) - 1, 2000).astype(np.int64))
    lengths = np.maximum(data.source_lengths, data.target_lengths)
    found = 1.0
    for chosen in plan_epoch(data.source_lengths, data.target_lengths, START, seed=0, epoch=0, rows=rows):
        batch = collate(data, chosen, tokenizers, epoch=0, index=0, resampled=resampled)
        most = max(batch.source.numel(), batch.target_out.numel())
        found = max(found, most / (len(chosen) * int(lengths[chosen].max())))
    return found


def find_budget(task: Task, recipe: TrainerRecipe, shapes: Shapes, *, token: int) -> Budget:
    """The budget of a micro-batch for every process of this machine. The task is used up: its weights are changed.

    `token` is any id that is not padding. A ConfigError says so if not even the longest pair fits.
    """
    limit = memory_limit(on_gpu=recipe.on_gpu, processes=recipe.processes)
    fitting = int(_measured(task, recipe, shapes, token, limit) / shapes.growth)
    if fitting < shapes.longest:
        raise ConfigError(
            f"batching.max_tokens: auto finds room for {fitting} in {limit / 1e9:.2f} GB a process, but a pair may "
            f"have {shapes.longest} tokens; take a smaller model or cleaning.max_len, or fewer trainer.devices"
        )
    window = recipe.accumulate * recipe.total_virtual_ranks
    most = fitting if shapes.tokens is None else max(shapes.longest, shapes.tokens // (LEAST_UPDATES * window))
    if most < fitting:
        return Budget(rounded(most, shapes.longest), f"with more an epoch had fewer than {LEAST_UPDATES} updates")
    return Budget(rounded(fitting, shapes.longest), f"more would not fit into {limit / 1e9:.2f} GB a process")


def _measured(task: Task, recipe: TrainerRecipe, shapes: Shapes, token: int, limit: int) -> int:
    try:
        trial = _Trial(task, recipe, token)
    except torch.OutOfMemoryError:
        return 0
    start = START if recipe.on_gpu else 1
    room = limit - _kept_gradients(task, recipe)
    found = largest_budget(trial.measure, room, (shapes.longest, shapes.shortest), start=start, tried=recipe.on_gpu)
    task.cpu()
    del trial
    if recipe.on_gpu:
        gc.collect()
        torch.cuda.empty_cache()
    return found


def _kept_gradients(task: Task, recipe: TrainerRecipe) -> int:
    """Bytes of gradients that `OrderedReduction` keeps of virtual ranks while it computes the next."""
    if not recipe.ordered or recipe.total_virtual_ranks == 1:
        return 0
    return recipe.total_virtual_ranks // recipe.total_processes * _bytes(list(task.parameters()))


def rounded(tokens: int, least: int) -> int:
    """Down to five binary digits, so that a little less free memory gives the same number; never below `least`."""
    step = 1 << max(0, tokens.bit_length() - 5)
    return max(least, tokens // step * step)


def largest_budget(measure: Measure, limit: int, widths: Sequence[int], *, start: int, tried: bool) -> int:
    """The most tokens a side with which micro-batches of each width stay within `limit` bytes; 0 if none does.

    The first trial of a width has `start` tokens, at least one row; `tried` runs the result before it is believed.
    """
    found = min(_extrapolated(measure, limit, width, start) for width in widths)
    while tried and found >= max(widths) and not all(_fits(measure, limit, found, width) for width in widths):
        found //= 2
    return found


def _extrapolated(measure: Measure, limit: int, width: int, start: int) -> int:
    rows = max(1, start // width)
    try:
        small, large = measure(rows, width), measure(2 * rows, width)
    except torch.OutOfMemoryError:
        small = large = 0
    if not large:
        return _extrapolated(measure, limit, width, start // 2) if rows > 1 else 0
    a_row = max(1.0, (large - small) / rows)
    return max(0, int(rows + (limit - small) / a_row)) * width


def _fits(measure: Measure, limit: int, tokens: int, width: int) -> bool:
    try:
        return measure(max(1, tokens // width), width) <= limit
    except torch.OutOfMemoryError:
        pass  # here, for the exception holds on to what could not be had
    torch.cuda.empty_cache()
    return False


class _Trial:
    """A task on its device with gradients and optimizer state, as an update in training finds them."""

    def __init__(self, task: Task, recipe: TrainerRecipe, token: int) -> None:
        self.device = torch.device("cuda", 0) if recipe.on_gpu else torch.device("cpu")
        self.half = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(str(recipe.precision))
        self.task, self.token = task.to(self.device).train(), token
        self.optimizer = task.configure_optimizers()
        self._loss(1, 1).backward()
        self.optimizer.step()

    def measure(self, rows: int, width: int) -> int:
        """See `Measure`. On a GPU what was allocated; on a CPU what is kept for the backward pass."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self._loss(rows, width).backward()
            return torch.cuda.max_memory_allocated(self.device)
        parameters = list(self.task.parameters())
        states = [t for state in self.optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
        resident = _bytes([*parameters, *(p.grad for p in parameters if p.grad is not None), *states])
        own, kept = {p.untyped_storage().data_ptr() for p in parameters}, {}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                kept[storage.data_ptr()] = storage.nbytes()
            return tensor.detach()  # the tensor itself would hold on to the graph that holds on to it

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = self._loss(rows, width)
        del loss
        return resident + sum(kept.values()) + 2 * max(kept.values())  # gradients of the largest

    def _loss(self, rows: int, width: int) -> torch.Tensor:
        """The loss of a micro-batch without padding."""
        ids = torch.full((rows, width), self.token, device=self.device)
        with nullcontext() if self.half is None else torch.autocast(self.device.type, dtype=self.half):
            return self.task.loss_of(Batch(ids, ids, ids, tuple(range(rows)))).total


def _bytes(tensors: Sequence[Any]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
