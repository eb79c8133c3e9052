"""Ends training where a score no longer improves: Lightning's callback, as resumed runs need it."""

import logging
from typing import Any

from lightning.pytorch import LightningModule, Trainer, callbacks
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason

log = logging.getLogger(__name__)


class EarlyStopping(callbacks.EarlyStopping):
    """Says why a run ends. What it has ended stays ended when it is resumed, unless its settings have changed.

    Lightning's own would train on till the next validation, and take `patience` from the checkpoint.
    """

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "settings": self._settings()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})
        if state_dict["settings"] != self._settings():
            self.stopping_reason = EarlyStoppingReason.NOT_STOPPED

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.stopping_reason is not EarlyStoppingReason.NOT_STOPPED or self.wait_count >= self.patience:
            self._end(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        before = trainer.should_stop
        super().on_validation_end(trainer, pl_module)
        if trainer.should_stop and not before:
            self._end(trainer)

    def _settings(self) -> list[Any]:
        return [self.patience, self.min_delta, self.stopping_threshold, self.divergence_threshold, self.check_finite]

    def _end(self, trainer: Trainer) -> None:
        trainer.should_stop = True
        reason = f"{self.monitor} has not improved for {self.wait_count} validations"
        if self.wait_count < self.patience:
            reason = f"{self.monitor} is not finite, or beyond a threshold"
        log.info("training ends after update %d: %s (callbacks.early_stopping)", trainer.global_step, reason)
