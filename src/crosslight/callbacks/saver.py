"""Saves what a run resumes from, at update boundaries only, and ends a run that a signal asks to end.

Never between the last batch before a validation and the end of that validation: a run resumed from there would skip it.
A signal does not wait for a validation: what is saved then says that the validation is still due, and a resumed run
begins with it.
"""

import logging
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from crosslight.errors import ConfigError
from crosslight.runs.checkpoints import load_checkpoint, save_checkpoint
from crosslight.runs.folder import RunFolder, update_of
from crosslight.runs.signals import Interrupted, interruption
from crosslight.tasks.base import Task

log = logging.getLogger(__name__)


class Saver(Checkpoint):
    """Every `every_n_updates`, and at the end; the last `keep_last` files of this run stay.

    What a signal or an earlier end has saved in between goes with the next save, so a run that was stopped has the same
    files, and the same average of the last ones, as one that never was.

    A `Checkpoint`, so Lightning runs it after the other callbacks, whose state it saves.
    """

    def __init__(self, *, every_n_updates: int, keep_last: int) -> None:
        if every_n_updates < 1 or keep_last < 1:
            raise ConfigError(
                f"callbacks.saver: need every_n_updates={every_n_updates} and keep_last={keep_last} of at least 1"
            )
        self.every_n_updates, self.keep_last = every_n_updates, keep_last
        self.validation_due = False
        self._due, self._making_up, self._signal = False, False, 0
        self._silenced: list[Any] = []
        self._kept: list[int] = []

    def state_dict(self) -> dict[str, Any]:
        return {"validation_due": self.validation_due, "kept": self._kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.validation_due, self._kept = state_dict["validation_due"], state_dict["kept"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        interruption.install()  # Lightning has put its own handlers in place
        interruption.waiting = True
        if self.validation_due:
            log.info("update %d: the validation that was left out comes first", trainer.global_step)
            self.validation_due, self._making_up = False, True
            validation = trainer.fit_loop.epoch_loop.val_loop
            validation.restarting = False
            trainer.validating = True
            validation.run()
            trainer.training = True
            self._making_up = False
            if trainer.should_stop:  # and that was all
                self._refresh(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        assert isinstance(pl_module, Task)
        pl_module.agreement.ask("signal", interruption.received)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Task)
        self._signal = pl_module.agreement.settled["signal"]
        scheduled = trainer.global_step and trainer.global_step % self.every_n_updates == 0
        self._due |= bool(self._signal) or trainer.should_stop or bool(scheduled)
        windows = trainer.fit_loop.total_batch_idx + 1
        validation_next = trainer.should_stop or windows % (trainer.val_check_batch or 1) == 0
        if self._signal and validation_next:
            self._abandon_validation(trainer)
            trainer.limit_val_batches = 0
        elif validation_next:
            return
        if self._due and not trainer.is_last_batch:
            self._save(trainer, pl_module)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        assert isinstance(pl_module, Task)
        if self._signal or not interruption.waiting:
            return
        pl_module.agreement.ask("signal", interruption.received)
        self._signal = pl_module.agreement.settle()["signal"]
        if self._signal and self._making_up:
            raise Interrupted(self._signal)  # what the run was resumed from says already that a validation is due
        if self._signal:
            self._abandon_validation(trainer)
            pl_module.abandoned = True

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        self._due |= trainer.should_stop or bool(self._signal)  # early stopping decides only now
        if self._due and not trainer.is_last_batch and not self._making_up:
            self._save(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._due:
            self._save(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        interruption.waiting = False
        if interruption.received:  # too late for any update, and all is saved
            raise Interrupted(interruption.received)

    def _abandon_validation(self, trainer: Trainer) -> None:
        """Nobody else hears of a validation that does not take place, or not to its end."""
        self.validation_due = True
        self._silenced, trainer.callbacks = trainer.callbacks, [self]  # type: ignore[attr-defined]

    def _refresh(self, trainer: Trainer) -> None:
        """Bring what the callbacks keep up to date in the checkpoint that the run was resumed from."""
        file = RunFolder(trainer.default_root_dir).at_update(trainer.global_step)
        callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
        states = {callback.state_key: state for callback in callbacks if (state := callback.state_dict())}
        if trainer.is_global_zero:
            save_checkpoint({**load_checkpoint(file), "callbacks": states}, file)

    def _save(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._due = False
        trainer.callbacks = self._silenced or trainer.callbacks  # type: ignore[attr-defined]
        folder = RunFolder(trainer.default_root_dir)
        update = pl_module.last_update if isinstance(pl_module, Task) else None
        if update is None or update.finite:  # what has diverged is nothing to resume from
            for logger in trainer.loggers:
                logger.save()
            now = trainer.global_step
            stay = [*(update for update in self._kept if update < now), now][-self.keep_last :]
            self._kept = [update for update in stay if update < now or now % self.every_n_updates == 0]
            trainer.save_checkpoint(folder.at_update(now))
            if trainer.is_global_zero:
                for path in folder.updates_saved():
                    if update_of(path) <= now and update_of(path) not in stay:
                        path.unlink()
        if self._signal:
            log.info("saved after update %d; resume=%s goes on from there", trainer.global_step, folder.path)
            raise Interrupted(self._signal)
