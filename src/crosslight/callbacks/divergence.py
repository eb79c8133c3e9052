"""Ends training where the loss or the gradient is no number any more, and names the sentences of that update."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback

from crosslight.batches import Batch
from crosslight.errors import RunError
from crosslight.runs.folder import RunFolder
from crosslight.tasks.base import Task, Update, gather_objects, named
from crosslight.tokenizers.base import Tokenizers


class DivergedError(RunError):
    """Training has diverged in the update at `position` (epoch, number of the window)."""

    def __init__(self, message: str, position: tuple[int, int]) -> None:
        super().__init__(message)
        self.position = position


class Verdict:
    """Whether the loss and the gradient of an update are numbers; on its way from the device since it was made."""

    def __init__(self, update: Update) -> None:
        finite = torch.stack([update.loss.isfinite(), update.gradient_norm.isfinite()])
        self._finite = finite.to("cpu", non_blocking=True)  # page-locked memory, which torch provides
        self._arrived = torch.cuda.Event() if finite.is_cuda else None
        if self._arrived:
            self._arrived.record()  # type: ignore[no-untyped-call]

    def read(self) -> tuple[bool, bool]:
        """Waits for the update, and for none that was queued after it."""
        if self._arrived:
            self._arrived.synchronize()  # type: ignore[no-untyped-call]
        loss, gradient = self._finite.tolist()
        return loss, gradient


class Divergence(Callback):
    """Raises a DivergedError on all processes together; the sentences, as text, are in `diverged_update=N.tsv`.

    On a GPU an update is looked at after the next one has been queued, so that the device never waits. What is looked
    at is a copy that was queued before that: a copy made only then would wait for the next update too.
    """

    def __init__(self) -> None:
        self._last: tuple[Update, Sequence[Batch], Verdict] | None = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Task)
        if pl_module.device.type == "cuda":
            self._check(trainer, pl_module)
        update = pl_module.last_update
        self._last = None if update is None else (update, batch, Verdict(update))
        if pl_module.device.type != "cuda":
            self._check(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._check(trainer, pl_module)

    def _check(self, trainer: Trainer, pl_module: Any) -> None:
        if self._last is None:
            return
        (update, window, verdict), self._last = self._last, None
        loss, gradient = verdict.read()
        scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        if loss and (gradient or scaled):  # fp16's scaler leaves out infinite gradients itself
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        lines = [line for part in gather_objects(_texts(window, data.tokenizers)) for line in part]
        file = Path(f"diverged_update={update.number}.tsv")
        folder = RunFolder(trainer.default_root_dir)
        if trainer.is_global_zero:
            text = "row\tsource\ttarget\n" + "".join(f"{row}\t{source}\t{target}\n" for row, source, target in lines)
            (folder.path / file).write_text(text, encoding="utf-8", errors="replace")
        saved = folder.updates_saved()
        raise DivergedError(
            f"update {update.number} (epoch {update.window[0]}): the loss is {float(update.loss):.4g} and the norm of "
            f"the gradient {float(update.gradient_norm):.4g}, with learning rate {update.learning_rate:.3g}; it was "
            f"made of {len(lines)} sentences, {named([row for row, _, _ in lines], 5)}, which {folder.path / file} "
            f"lists; the last good checkpoint is {saved[-1].name if saved else 'none'}; try a lower optimizer.lr, a "
            f"longer scheduler.warmup_steps, or trainer.on_divergence=rollback",
            update.window,
        )


def _texts(window: Sequence[Batch], tokenizers: Tokenizers) -> list[tuple[int, str, str]]:
    """Row, source and target of every sentence of this process's micro-batches."""
    found: list[tuple[int, str, str]] = []
    for batch in window:
        sources = tokenizers.source.decode_batch(batch.source.tolist())
        targets = tokenizers.target.decode_batch(batch.target_out.tolist())
        found += zip(batch.sentence_ids, map(_flat, sources), map(_flat, targets), strict=False)
    return found


def _flat(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")
