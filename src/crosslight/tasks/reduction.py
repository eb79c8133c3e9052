"""How the gradients of an update's micro-batches become one sum over all processes.

*Ordered* adds the virtual ranks' gradients one by one in a fixed order: the same bits on any number of processes.
*Fast* leaves the order to the communication library. Both leave plain sums in `.grad`, in two steps: `accumulate` runs
this process's micro-batches, `reduce` adds up over processes. In between all processes can agree to drop the update.
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
    """After `accumulate` and `reduce`, `.grad` and the sums that `reduce` returns cover all processes.

    `survives` says whether processes still agree with each other when `accumulate` fails on one of them.
    """

    survives: bool

    def accumulate(
        self, parameters: Sequence[nn.Parameter], window: Sequence[Batch], micro_step: MicroStep, strategy: Any
    ) -> Any: ...

    def reduce(self, parameters: Sequence[nn.Parameter], local: Any) -> Float[Tensor, "3"]: ...


class OrderedReduction:
    """`((g0 + g1) + g2) + …` over virtual ranks, each the sum of `accumulate` micro-batches computed from nothing."""

    survives = True

    def __init__(self, accumulate: int) -> None:
        self.size = accumulate

    def accumulate(
        self, parameters: Sequence[nn.Parameter], window: Sequence[Batch], micro_step: MicroStep, strategy: Any
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The gradients and sums of this process's virtual ranks; a single gradient that is all stays in `.grad`."""
        starts = range(0, len(window), self.size)
        gradients, sums = [], []
        for start in starts:
            for parameter in parameters:
                parameter.grad = None
            here = torch.zeros(3, dtype=torch.float64, device=parameters[0].device)
            for batch in window[start : start + self.size]:
                if batch.sentence_ids:
                    here = here + micro_step(batch)
            sums.append(here)
            if world_size() > 1 or len(starts) > 1:
                gradients.append(_flat_gradient(parameters))
        return gradients, sums

    def reduce(self, parameters: Sequence[nn.Parameter], local: tuple[list[Tensor], list[Tensor]]) -> Tensor:
        gradients, sums = local
        if not gradients:
            _fill_gradients(parameters)
            return sums[0]
        _set_gradient(parameters, _ordered_sum(gradients))
        return _ordered_sum(sums)


class FastReduction:
    """Backward passes add up in `.grad`, then all processes' sums are added.

    With `overlap` the last backward pass of the window is overlapped with the communication, by DDP's reducer or by
    FSDP. It is then too late to agree on dropping an update that one process has no memory for.
    """

    def __init__(self, *, overlap: bool) -> None:
        self.overlap = overlap

    @property
    def survives(self) -> bool:
        return not self.overlap or world_size() == 1

    def accumulate(
        self, parameters: Sequence[nn.Parameter], window: Sequence[Batch], micro_step: MicroStep, strategy: Any
    ) -> Tensor:
        """The sums of this process's micro-batches."""
        sums = torch.zeros(3, dtype=torch.float64, device=parameters[0].device)
        for number, batch in enumerate(window, 1):
            if not self.overlap and not batch.sentence_ids:
                continue  # DDP counts backward passes, so there even a placeholder makes one
            wait = self.overlap and number < len(window) and hasattr(strategy, "block_backward_sync")
            with strategy.block_backward_sync() if wait else nullcontext():
                sums = sums + micro_step(batch)
        return sums

    def reduce(self, parameters: Sequence[nn.Parameter], local: Tensor) -> Tensor:
        if (world := world_size()) == 1:
            return local
        dist.all_reduce(local)
        if self.overlap:
            for parameter in parameters:  # DDP and FSDP take the mean
                if parameter.grad is not None:
                    parameter.grad.mul_(world)
        else:
            gradient = _flat_gradient(parameters)
            dist.all_reduce(gradient)
            _set_gradient(parameters, gradient)
        return local


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _fill_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """The gradient of an unused parameter is zero, in every layout alike."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)


def _flat_gradient(parameters: Sequence[nn.Parameter]) -> Tensor:
    _fill_gradients(parameters)
    return torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])


def _set_gradient(parameters: Sequence[nn.Parameter], gradient: Tensor) -> None:
    for parameter, part in zip(parameters, gradient.split([p.numel() for p in parameters]), strict=True):
        parameter.grad = part.view_as(parameter)


def _ordered_sum(local: list[Tensor]) -> Tensor:
    """The sum of all processes' tensors, one after another in the order of the virtual ranks."""
    rows = torch.stack(local)
    if (world := world_size()) > 1:
        parts = [torch.empty_like(rows) for _ in range(world)]
        dist.all_gather(parts, rows)
        rows = torch.cat(parts)
    total, *rest = rows
    for row in rest:
        total = total + row
    return total
