"""Ends training at a number of updates, of epochs, or after a time, with a last validation.

Lightning's own `max_steps` would make a resume from the end of an epoch go wrong (docs/decisions/one-update.md).
"""

import logging
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from crosslight.runs.trainer import seconds_of
from crosslight.tasks.base import Task

log = logging.getLogger(__name__)


class StopAt(Callback):
    """Whichever limit comes first; `max_time` is "DD:HH:MM:SS" of training in this process."""

    def __init__(self, *, max_steps: int, max_epochs: int | None, max_time: str | None) -> None:
        self.max_steps, self.max_epochs, self.max_time = max_steps, max_epochs, max_time
        self.seconds = None if max_time is None else seconds_of(max_time)
        self.start = time.monotonic()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.start = time.monotonic()
        # a run that was there already makes no further step
        trainer.should_stop = self._reached(trainer.global_step, trainer.current_epoch)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.seconds is not None and time.monotonic() - self.start >= self.seconds:
            assert isinstance(pl_module, Task)
            pl_module.agreement.ask("time")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Task)
        late = bool(pl_module.agreement.settled["time"])
        if late or self._reached(trainer.global_step, trainer.current_epoch + trainer.is_last_batch):
            trainer.should_stop = True
            if trainer.global_step < self.max_steps:
                limit = f"max_time={self.max_time}" if late else f"max_epochs={self.max_epochs}"
                log.info("training ends after update %d: trainer.%s", trainer.global_step, limit)

    def _reached(self, updates: int, epochs: int) -> bool:
        return updates >= self.max_steps or (self.max_epochs is not None and epochs >= self.max_epochs)
