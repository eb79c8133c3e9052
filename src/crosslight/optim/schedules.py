"""Learning rates as pure functions of the update, counted from 1."""

import math
from typing import Protocol, runtime_checkable

from crosslight.errors import ConfigError


@runtime_checkable
class Schedule(Protocol):
    """Gives the learning rate of an update; `peak` is `optimizer.lr`."""

    def __call__(self, update: int, peak: float) -> float: ...


def _checked(warmup_steps: int) -> int:
    if warmup_steps < 0:
        raise ConfigError(f"scheduler.warmup_steps: {warmup_steps} is negative")
    return warmup_steps


class Noam:
    """`factor * d_model^-0.5 * min(update^-0.5, update * warmup_steps^-1.5)`: Vaswani et al. 2017, equation 3.

    The rate follows from the model's size; `optimizer.lr` plays no part. Without warm-up it is inverse square root.
    """

    def __init__(self, *, d_model: int, warmup_steps: int, factor: float) -> None:
        self.scale, self.warmup_steps = factor * d_model**-0.5, _checked(warmup_steps)

    def __call__(self, update: int, peak: float) -> float:
        falling = update**-0.5
        return self.scale * (min(falling, update * self.warmup_steps**-1.5) if self.warmup_steps else falling)


class InverseSquareRoot:
    """Linear to the peak in `warmup_steps`, then falling as `(warmup_steps / update)^0.5`."""

    def __init__(self, *, warmup_steps: int) -> None:
        self.warmup_steps = max(1, _checked(warmup_steps))

    def __call__(self, update: int, peak: float) -> float:
        return peak * min(update / self.warmup_steps, (self.warmup_steps / update) ** 0.5)


class Cosine:
    """Linear to the peak in `warmup_steps`, then half a cosine down to `floor * peak` at `total_steps`."""

    def __init__(self, *, warmup_steps: int, total_steps: int, floor: float) -> None:
        self.warmup_steps, self.total_steps, self.floor = _checked(warmup_steps), total_steps, floor

    def __call__(self, update: int, peak: float) -> float:
        if update <= self.warmup_steps:
            return peak * update / self.warmup_steps
        done = min(1.0, (update - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps))
        return peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done)))


class Constant:
    """Linear to the peak in `warmup_steps`, then the peak."""

    def __init__(self, *, warmup_steps: int) -> None:
        self.warmup_steps = _checked(warmup_steps)

    def __call__(self, update: int, peak: float) -> float:
        return peak * min(1.0, update / self.warmup_steps) if self.warmup_steps else peak
