"""Saves what a run resumes from, at update boundaries only.

Never between the last batch before a validation and the end of that validation: a run resumed from there would skip it.
"""

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from crosslight.errors import ConfigError
from crosslight.runs.folder import RunFolder, update_of


class Saver(Checkpoint):
    """Every `every_n_updates`, and at the end; the last `keep_last` files of this run stay.

    A `Checkpoint`, so Lightning runs it after the other callbacks, whose state it saves.
    """

    def __init__(self, *, every_n_updates: int, keep_last: int) -> None:
        if every_n_updates < 1 or keep_last < 1:
            raise ConfigError(
                f"callbacks.saver: need every_n_updates={every_n_updates} and keep_last={keep_last} of at least 1"
            )
        self.every_n_updates, self.keep_last = every_n_updates, keep_last
        self._due = False

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._due |= trainer.should_stop or trainer.global_step % self.every_n_updates == 0
        validation_next = trainer.should_stop or trainer.global_step % (trainer.val_check_batch or 1) == 0
        if self._due and not validation_next and not trainer.is_last_batch:
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        self._due |= trainer.should_stop  # early stopping decides only now
        if self._due and not trainer.is_last_batch:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._due:
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        self._due = False
        folder = RunFolder(trainer.default_root_dir)
        for logger in trainer.loggers:
            logger.save()
        trainer.save_checkpoint(folder.at_update(trainer.global_step))
        if trainer.is_global_zero:
            saved = [path for path in folder.updates_saved() if update_of(path) <= trainer.global_step]
            for path in saved[: -self.keep_last]:
                path.unlink()
