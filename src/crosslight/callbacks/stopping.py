"""Ends training at a number of updates, of epochs, after a time, or when a score rises no more.

Lightning's own `max_steps` would make a resume from the end of an epoch go wrong (docs/decisions/one-update.md).
"""

import logging
import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch import callbacks as lightning
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason

from crosslight.runs.trainer import seconds_of
from crosslight.tasks.base import Task

log = logging.getLogger(__name__)


class StopAt(Callback):
    """Whichever limit comes first; `max_time` is "DD:HH:MM:SS" of training in this process."""

    def __init__(self, *, max_steps: int, max_epochs: int | None, max_time: str | None) -> None:
        self.max_steps, self.max_epochs = max_steps, max_epochs
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

    def _reached(self, updates: int, epochs: int) -> bool:
        return updates >= self.max_steps or (self.max_epochs is not None and epochs >= self.max_epochs)


class EarlyStopping(lightning.EarlyStopping):
    """Lightning's, for runs that are resumed: what it has ended stays ended, unless its settings have changed.

    Lightning's own trains on till the next validation, and takes `patience` from the checkpoint.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.stopping_reason is not EarlyStoppingReason.NOT_STOPPED:
            log.info("early stopping has ended this run; more callbacks.early_stopping.patience would go on with it")
            trainer.should_stop = True

    def _settings(self) -> list[Any]:
        return [self.patience, self.min_delta, self.stopping_threshold, self.divergence_threshold, self.check_finite]

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "settings": self._settings()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})
        if state_dict.get("settings", self._settings()) != self._settings():
            self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
