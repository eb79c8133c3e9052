"""Ends training where a score no longer improves: Lightning's callback, as resumed runs need it."""

import logging
from typing import Any

from lightning.pytorch import LightningModule, Trainer, callbacks

log = logging.getLogger(__name__)


class EarlyStopping(callbacks.EarlyStopping):
    """Says why a run ends. A resume may change the patience, and does not train on where it has run out already."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.wait_count >= self.patience:
            self._end(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        before = trainer.should_stop
        super().on_validation_end(trainer, pl_module)
        if trainer.should_stop and not before:
            self._end(trainer)

    def _end(self, trainer: Trainer) -> None:
        trainer.should_stop = True
        log.info(
            "training ends after update %d: %s (callbacks.early_stopping)",
            trainer.global_step,
            f"{self.monitor} has not improved for {self.wait_count} validations"
            if self.wait_count >= self.patience
            else f"{self.monitor} is not finite",
        )
