"""Numbers of the training: to the loggers every `every_n_updates` updates, to the console every few seconds.

Reading a number waits for the device, so nothing is read between two logging steps.
"""

import logging
import math
import time
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from crosslight.tasks.base import Task

log = logging.getLogger(__name__)


class Progress(Callback):
    """Loss, perplexity, learning rate, gradient norm and target tokens a second (validation not counted in).

    `seconds` is the least time between two lines on the console.
    """

    def __init__(self, *, every_n_updates: int, seconds: float) -> None:
        self.every_n_updates = every_n_updates
        self.seconds = seconds
        self.tokens = 0
        self.training_seconds = 0.0
        self._recent: list[torch.Tensor] = []

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._recent = []
        self._since = self._begun = time.monotonic()
        self._said, self._first = 0.0, trainer.global_step

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._paused = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        self._since += time.monotonic() - self._paused
        shown = {k: float(v) for k, v in sorted(trainer.callback_metrics.items()) if k.startswith("val/")}
        for logger in trainer.loggers:  # Lightning itself would log them one update early
            logger.log_metrics(shown, step=trainer.global_step)
        log.info(
            "update %d, validation: %s", trainer.global_step, ", ".join(f"{k[4:]} {v:.4g}" for k, v in shown.items())
        )

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Task)
        update = pl_module.last_update
        if update is None:
            return
        self._recent.append(update.tokens)
        first = update.number == self._first + 1  # a sign of life, and how large the first loss is
        if update.number % self.every_n_updates and not trainer.should_stop and not first:
            return
        tokens = int(torch.stack(self._recent).sum())
        now = time.monotonic()
        rate = tokens / max(1e-9, now - self._since)
        self.tokens, self.training_seconds = self.tokens + tokens, self.training_seconds + now - self._since
        self._recent, self._since = [], now
        numbers = {
            "train/loss": float(update.loss),
            "train/perplexity": math.exp(min(float(update.nll), 50.0)),
            "train/learning_rate": update.learning_rate,
            "train/gradient_norm": float(update.gradient_norm),
            "train/target_tokens_per_second": rate,
            "train/epoch": float(trainer.current_epoch),
        }
        for logger in trainer.loggers:
            logger.log_metrics(numbers, step=update.number)
        if now - self._said >= self.seconds or trainer.should_stop:
            self._said = now
            self._say(update.number, numbers, now, trainer)

    def _say(self, number: int, numbers: dict[str, float], now: float, trainer: Trainer) -> None:
        from crosslight.callbacks.stopping import StopAt

        limit = next((c.max_steps for c in trainer.callbacks if isinstance(c, StopAt)), number)  # type: ignore[attr-defined]
        left = (now - self._begun) / max(1, number - self._first) * (limit - number)
        log.info(
            "update %d/%d, epoch %d: loss %.3f, perplexity %.2f, rate %.2e, norm %.2f, %.0f tokens/s, %s left",
            number,
            limit,
            numbers["train/epoch"],
            numbers["train/loss"],
            numbers["train/perplexity"],
            numbers["train/learning_rate"],
            numbers["train/gradient_norm"],
            numbers["train/target_tokens_per_second"],
            f"{int(left) // 3600}:{int(left) // 60 % 60:02}:{int(left) % 60:02}",
        )

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._recent:  # updates since the last report, where something else ended the training
            self.tokens += int(torch.stack(self._recent).sum())
            self.training_seconds += max(0.0, time.monotonic() - self._since)
            self._recent = []

    def state_dict(self) -> dict[str, Any]:
        """With the updates since the last report: a resumed run begins to count after them."""
        if not self._recent:
            return {"tokens": self.tokens, "training_seconds": self.training_seconds}
        seconds = max(0.0, time.monotonic() - self._since)
        return {
            "tokens": self.tokens + int(torch.stack(self._recent).sum()),
            "training_seconds": self.training_seconds + seconds,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tokens, self.training_seconds = state_dict["tokens"], state_dict["training_seconds"]
