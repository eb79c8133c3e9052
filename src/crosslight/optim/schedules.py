"""Learning rates as pure functions of the update, counted from 1."""

import math
from typing import Protocol, runtime_checkable

from crosslight.errors import ConfigError


@runtime_checkable
class Schedule(Protocol):
    """Gives the learning rate of an update; `peak` is `optimizer.lr`."""

    def __call__(self, update: int, peak: float) -> float: ...


def _warmup(steps: int) -> int:
    if steps < 0:
        raise ConfigError(f"scheduler.warmup_steps: {steps} is negative; 0 is no warm-up")
    return steps


def _floor(share: float) -> float:
    if not 0 <= share <= 1:
        raise ConfigError(f"scheduler.floor: {share} is no share of optimizer.lr; give a number from 0 to 1")
    return share


class Noam:
    """`factor * d_model^-0.5 * min(update^-0.5, update * warmup_steps^-1.5)`: Vaswani et al. 2017, equation 3.

    The rate follows from the model's size; `optimizer.lr` plays no part. Without warm-up it is inverse square root.
    """

    def __init__(self, *, d_model: int, warmup_steps: int, factor: float) -> None:
        if not 0 < factor < math.inf:
            raise ConfigError(f"scheduler.factor: {factor} gives no rate to train with; the paper's is 1")
        if d_model < 1:
            raise ConfigError(f"scheduler.d_model: {d_model} is less than 1; give that of the model")
        self.scale, self.warmup_steps = factor * d_model**-0.5, _warmup(warmup_steps)

    def __call__(self, update: int, peak: float) -> float:
        falling = update**-0.5
        return self.scale * (min(falling, update * self.warmup_steps**-1.5) if self.warmup_steps else falling)


class InverseSquareRoot:
    """Linear to the peak in `warmup_steps`, then falling as `(warmup_steps / update)^0.5`."""

    def __init__(self, *, warmup_steps: int) -> None:
        self.warmup_steps = max(1, _warmup(warmup_steps))

    def __call__(self, update: int, peak: float) -> float:
        return peak * min(update / self.warmup_steps, (self.warmup_steps / update) ** 0.5)


class Cosine:
    """Linear to the peak in `warmup_steps`, then half a cosine down to `floor * peak` at `total_steps`."""

    def __init__(self, *, warmup_steps: int, total_steps: int, floor: float) -> None:
        self.warmup_steps, self.total_steps, self.floor = _warmup(warmup_steps), total_steps, _floor(floor)

    def __call__(self, update: int, peak: float) -> float:
        if update <= self.warmup_steps:
            return peak * update / self.warmup_steps
        done = min(1.0, (update - self.warmup_steps) / max(1, self.total_steps - self.warmup_steps))
        return peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * done)))


class WarmupStableDecay:
    """Linear to the peak in `warmup_steps`, then the peak, then down to `floor * peak` in the last `decay_steps`.

    Warm-up, stable, decay: Hu et al. 2024 (MiniCPM). The decay is "1-sqrt" of Hägele et al. 2024, which they found
    better than a linear one: `1 - sqrt(done)` of the way from the floor to the peak, `done` the part of the decay that
    is over. A run that is too short for both never reaches the peak: the lower of the two lines counts.
    """

    def __init__(self, *, warmup_steps: int, total_steps: int, decay_steps: int, floor: float) -> None:
        self.warmup_steps, self.total_steps, self.floor = _warmup(warmup_steps), total_steps, _floor(floor)
        if not 0 <= decay_steps <= total_steps:
            raise ConfigError(
                f"scheduler.decay_steps: {decay_steps} is not within scheduler.total_steps={total_steps}; "
                f"a fifth of it is usual"
            )
        self.decay_steps = decay_steps

    def __call__(self, update: int, peak: float) -> float:
        rising = min(1.0, update / self.warmup_steps) if self.warmup_steps else 1.0
        begun = update - (self.total_steps - self.decay_steps)
        done = min(1.0, begun / self.decay_steps) if self.decay_steps and begun > 0 else 0.0
        return peak * min(rising, self.floor + (1 - self.floor) * (1 - math.sqrt(done)))


class Constant:
    """Linear to the peak in `warmup_steps`, then the peak."""

    def __init__(self, *, warmup_steps: int) -> None:
        self.warmup_steps = _warmup(warmup_steps)

    def __call__(self, update: int, peak: float) -> float:
        return peak * min(1.0, update / self.warmup_steps) if self.warmup_steps else peak
