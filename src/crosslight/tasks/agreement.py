"""What one process asks of all: agreed on once an update, on the host, so that no GPU waits for it."""

from typing import Any

import torch
import torch.distributed as dist

from crosslight.errors import RunError

WISHES = ("out_of_memory", "signal", "time")


class Agreement:
    """Every wish is a number from 0 (none) up; the greatest of all processes counts.

    `out_of_memory`: 1 if this process had no memory for the update. `signal`: the number of a signal that asks for
    the end. `time`: 1 if the time is over.
    """

    def __init__(self) -> None:
        self._wishes = dict.fromkeys(WISHES, 0)
        self._group: Any = None
        self.settled = dict.fromkeys(WISHES, 0)

    def ask(self, wish: str, value: int = 1) -> None:
        """Ask for something at the next `settle`; only sets a number, so a signal handler may call it."""
        self._wishes[wish] = value

    def settle(self) -> dict[str, int]:
        """What is agreed on; all processes call this at the same points. It stays in `settled` till the next time."""
        self.settled, self._wishes = self._wishes, dict.fromkeys(WISHES, 0)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            if self._group is None:  # a GPU's own backend cannot take numbers of the host
                self._group = dist.group.WORLD if dist.get_backend() == "gloo" else dist.new_group(backend="gloo")
            values = torch.tensor(list(self.settled.values()))
            try:
                dist.all_reduce(values, dist.ReduceOp.MAX, group=self._group)
            except RuntimeError as error:
                raise RunError(f"another process of this run has ended; its own message says why ({error})") from error
            self.settled = dict(zip(WISHES, values.tolist(), strict=True))
        return self.settled
