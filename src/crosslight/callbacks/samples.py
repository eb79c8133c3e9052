"""A few source / hypothesis / reference lines after each validation, in the log and in TensorBoard."""

import logging
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger

log = logging.getLogger(__name__)


class Samples(Callback):
    """The first `count` validation sentences, the same each time."""

    def __init__(self, *, count: int) -> None:
        self.count = count

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        result = getattr(pl_module, "validation_result", None)
        if result is None or not trainer.is_global_zero:
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        validation = data.validation
        sources = [validation.source_text[row] for row in range(min(self.count, len(validation)))]
        rows = list(zip(sources, result.hypotheses, result.references, strict=False))
        for source, hypothesis, reference in rows:
            log.info("\n  source     %s\n  hypothesis %s\n  reference  %s", source, hypothesis, reference)
        table = "| source | hypothesis | reference |\n|---|---|---|\n"
        table += "".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in row)} |\n" for row in rows)
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_text("val/samples", table, trainer.global_step)
