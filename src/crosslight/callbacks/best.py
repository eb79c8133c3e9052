"""Keeps the weights with the best validation scores in `checkpoints/best/`, and the very best as `best.ckpt`."""

import logging
import math
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from crosslight.errors import ConfigError
from crosslight.runs.checkpoints import save_checkpoint
from crosslight.runs.folder import RunFolder, link_atomically
from crosslight.tasks.base import gather_objects
from crosslight.tasks.seq2seq import Seq2SeqTask

log = logging.getLogger(__name__)


class Best(Callback):
    """`monitor` names a validation metric, such as `val/bleu`; `mode` says whether more or less of it is better.

    `values` maps the updates whose weights are kept, at most `keep`, to their scores, the best first. It is saved with
    the run: files of updates that a killed run made after its last save are not in it, and are left alone.
    """

    def __init__(self, *, monitor: str, mode: Literal["max", "min"], keep: int) -> None:
        if mode not in ("max", "min"):
            raise ConfigError(f"callbacks.best.mode: {mode!r} is neither max nor min")
        if keep < 1:
            raise ConfigError(f"callbacks.best.keep: {keep} is less than 1")
        self.monitor, self.mode, self.keep = monitor, mode, keep
        self.values: dict[int, float] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """After a resume, forget files that the killed run has replaced by better ones after its last save.

        If fewer are to be kept than before, remove the others.
        """
        folder = RunFolder(trainer.default_root_dir)
        here = {update: value for update, value in self.values.items() if folder.kept_at(update).is_file()}
        there: dict[int, float] = gather_objects(here)[0]
        self.values = self._ranked(there)
        if self.values and trainer.is_global_zero:
            link_atomically(folder.kept_at(next(iter(self.values))), folder.best)
            for other in there.keys() - self.values.keys():
                folder.kept_at(other).unlink(missing_ok=True)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics))
            raise ConfigError(f"callbacks.best.monitor: there is no metric {self.monitor!r}; there are {known}")
        value, update = float(trainer.callback_metrics[self.monitor]), trainer.global_step
        values = self._ranked({**self.values, update: value})
        if update not in values:
            return
        content = self._content(trainer, pl_module, value)
        gone, self.values = self.values.keys() - values.keys(), values
        first = next(iter(values)) == update
        if trainer.is_global_zero:
            folder = RunFolder(trainer.default_root_dir)
            save_checkpoint(content, folder.kept_at(update))
            if first:
                link_atomically(folder.kept_at(update), folder.best)
            for other in gone:
                folder.kept_at(other).unlink(missing_ok=True)
        if first:
            log.info("best so far: %s %.4g after update %d", self.monitor, value, update)

    def is_better(self, value: float, than: float) -> bool:
        """Whether a score is strictly better than another; NaN is worse than any number."""
        if math.isnan(value) or math.isnan(than):
            return math.isnan(than) and not math.isnan(value)
        return value > than if self.mode == "max" else value < than

    def _ranked(self, values: dict[int, float]) -> dict[int, float]:
        """The `keep` best of them, the earlier first where they are equal. NaN, the latest, is better than nothing."""
        sound = {update: value for update, value in values.items() if not math.isnan(value)}
        if not sound:
            return {update: values[update] for update in sorted(values)[-1:]}
        sign = -1 if self.mode == "max" else 1
        order = sorted(sound, key=lambda update: (sign * sound[update], update))
        return {update: sound[update] for update in order[: self.keep]}

    def _content(self, trainer: Trainer, pl_module: LightningModule, value: float) -> dict[str, Any]:
        assert isinstance(pl_module, Seq2SeqTask)
        assert pl_module.validation_result is not None
        return {
            "state_dict": trainer.strategy.lightning_module_state_dict(),
            "update": trainer.global_step,
            "monitor": self.monitor,
            "value": value,
            "crosslight": pl_module.checkpoint_facts,
            "scores": {name: score._asdict() for name, score in pl_module.validation_result.scores.items()},
        }

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.values = state_dict["values"]
