"""Keeps the weights with the best validation score in `checkpoints/best.ckpt`; the test uses them."""

import logging
import math
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from crosslight.errors import ConfigError
from crosslight.runs.checkpoints import save_checkpoint
from crosslight.runs.folder import RunFolder
from crosslight.tasks.seq2seq import Seq2SeqTask

log = logging.getLogger(__name__)


class Best(Callback):
    """`monitor` names a validation metric, such as `val/bleu`; `mode` says whether more or less of it is better."""

    def __init__(self, *, monitor: str, mode: Literal["max", "min"]) -> None:
        if mode not in ("max", "min"):
            raise ConfigError(f"callbacks.best.mode: {mode!r} is neither max nor min")
        self.monitor, self.mode = monitor, mode
        self.value: float | None = None
        self.update = 0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.monitor not in trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics))
            raise ConfigError(f"callbacks.best.monitor: there is no metric {self.monitor!r}; there are {known}")
        assert isinstance(pl_module, Seq2SeqTask)
        assert pl_module.validation_result is not None
        value = float(trainer.callback_metrics[self.monitor])
        if not self._is_better(value):
            return
        self.value, self.update = value, trainer.global_step
        weights = trainer.strategy.lightning_module_state_dict()
        content = {"state_dict": weights, "update": self.update, "monitor": self.monitor, "value": value}
        content["crosslight"] = pl_module.checkpoint_facts
        content["scores"] = {name: score._asdict() for name, score in pl_module.validation_result.scores.items()}
        if trainer.is_global_zero:
            save_checkpoint(content, RunFolder(trainer.default_root_dir).best)
        log.info("best so far: %s %.4g after update %d", self.monitor, value, self.update)

    def _is_better(self, value: float) -> bool:
        """NaN is better than nothing only."""
        if self.value is None or math.isnan(self.value):
            return True
        return value > self.value if self.mode == "max" else value < self.value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "update": self.update}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value, self.update = state_dict["value"], state_dict["update"]
