"""A callback that notes every step of a run on the disk at once, so that a test knows what a killed run was doing.

Named by `_target_` in the runs of `killing.py`, whose processes find it through PYTHONPATH.
"""

import hashlib
import json
import os
import signal
from collections.abc import Sequence
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from crosslight.batches import Batch
from crosslight.tasks.base import Task


class KillLog(Callback):
    """One JSON line a step in `<path>.<rank>`. With `die` = [update, micro-batch], both from 1, the process kills
    itself by SIGKILL when it has come so far in its forward passes."""

    def __init__(self, *, path: str, die: list[int] | None) -> None:
        self.path, self.die, self.micro = path, die, 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.file = os.open(f"{self.path}.{trainer.global_rank}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self.file, b"\n")  # the last line may have been cut
        self._note("start", trainer.global_step, world=trainer.world_size, pid=os.getpid())

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Any) -> None:
        self.micro += 1
        self._note("micro-batch", trainer.global_step + 1, number=self.micro)
        if self.die == [trainer.global_step + 1, self.micro]:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Sequence[Batch], batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Task)
        assert pl_module.last_update is not None
        done, self.micro = pl_module.last_update, 0
        numbers = {name: float(getattr(done, name)).hex() for name in ("loss", "nll", "tokens", "gradient_norm")}
        self._note(
            "update",
            done.number,
            epoch=trainer.current_epoch,
            micro_batches=[[*part.sentence_ids] for part in batch],
            pieces=[_hash(part) for part in batch],
            learning_rate=done.learning_rate.hex(),
            **numbers,
        )

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit":  # the end-game validates other weights
            self._note("validation", trainer.global_step)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        metrics = trainer.callback_metrics.items()
        scores = {name: float(value).hex() for name, value in metrics if name.startswith("val/")}
        self._note("validated", trainer.global_step, last_of_epoch=trainer.is_last_batch, scores=scores)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._note("test", trainer.global_step)

    def _note(self, step: str, update: int, **facts: Any) -> None:
        os.write(self.file, json.dumps({"step": step, "update": update, **facts}).encode() + b"\n")


def _hash(batch: Batch) -> str:
    return hashlib.sha256(batch.source.numpy().tobytes() + batch.target_out.numpy().tobytes()).hexdigest()[:16]
