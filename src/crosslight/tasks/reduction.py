"""How the gradients of an update's micro-batches become one sum over all processes.

*Ordered* adds the virtual ranks' gradients one by one in a fixed order: the same bits on any number of processes.
*Fast* lets DDP's reducer overlap communication with the backward pass. Both leave plain sums in `.grad`.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
import torch.distributed as dist
from torch import nn

from crosslight.batches import Batch
from crosslight.shapes import Float, Tensor

MicroStep = Callable[[Batch], Tensor]
"""Forward and backward of the summed loss; returns the three sums `total, nll, count`."""


@runtime_checkable
class Reduction(Protocol):
    """Runs this process's micro-batches; afterwards `.grad` and the returned sums cover all processes."""

    def __call__(
        self, parameters: Sequence[nn.Parameter], window: Sequence[Batch], micro_step: MicroStep, strategy: Any
    ) -> Float[Tensor, "3"]: ...


class OrderedReduction:
    """`((g0 + g1) + g2) + …` over virtual ranks, each the sum of `accumulate` micro-batches computed from nothing."""

    def __init__(self, accumulate: int) -> None:
        self.accumulate = accumulate

    def __call__(
        self, parameters: Sequence[nn.Parameter], window: Sequence[Batch], micro_step: MicroStep, strategy: Any
    ) -> Float[Tensor, "3"]:
        world, starts = _world_size(), range(0, len(window), self.accumulate)
        alone = world == 1 and len(starts) == 1
        gradients, sums = [], []
        for start in starts:
            for parameter in parameters:
                parameter.grad = None
            here = torch.zeros(3, dtype=torch.float64, device=parameters[0].device)
            for batch in window[start : start + self.accumulate]:
                if batch.sentence_ids:
                    here = here + micro_step(batch)
            _fill(parameters)
            sums.append(here)
            if not alone:
                gradients.append(torch.cat([p.grad.flatten() for p in parameters if p.grad is not None]))
        if alone:
            return sums[0]
        total, *rest = _gather(torch.stack(gradients), world)
        for gradient in rest:
            total = total + gradient
        for parameter, part in zip(parameters, total.split([p.numel() for p in parameters]), strict=True):
            parameter.grad = part.view_as(parameter)
        total_sums, *rest = _gather(torch.stack(sums), world)
        for other in rest:
            total_sums = total_sums + other
        return total_sums


class FastReduction:
    """Backward passes add up in `.grad`; the last one of the window is overlapped with DDP's all-reduce."""

    def __call__(
        self, parameters: Sequence[nn.Parameter], window: Sequence[Batch], micro_step: MicroStep, strategy: Any
    ) -> Float[Tensor, "3"]:
        world = _world_size()
        sums = torch.zeros(3, dtype=torch.float64, device=parameters[0].device)
        for number, batch in enumerate(window, 1):
            wait = number < len(window) and hasattr(strategy, "block_backward_sync")
            with strategy.block_backward_sync() if wait else nullcontext():
                sums = sums + micro_step(batch)
        if world > 1:
            dist.all_reduce(sums)
            for parameter in parameters:  # DDP and FSDP take the mean
                if parameter.grad is not None:
                    parameter.grad.mul_(world)
        _fill(parameters)
        return sums


def _fill(parameters: Sequence[nn.Parameter]) -> None:
    """Zeros for parameters that were not used: they weigh nothing, in every layout alike."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _gather(local: Tensor, world: int) -> list[Tensor]:
    """The rows of all processes' tensors, in the order of the ranks."""
    if world == 1:
        return list(local)
    parts = [torch.empty_like(local) for _ in range(world)]
    dist.all_gather(parts, local)
    return list(torch.cat(parts))
