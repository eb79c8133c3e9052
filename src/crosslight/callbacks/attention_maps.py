"""Cross-attention heat maps of a few fixed validation sentences in TensorBoard, with the pieces on the axes."""

from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger

from crosslight.data.collate import collate
from crosslight.models.attention_maps import attention_figure, cross_attention


class AttentionMaps(Callback):
    """The first `count` validation sentences with their references: one panel a decoder layer, heads averaged.

    The reference is fixed, so the slider of TensorBoard shows one sentence in the course of the training.
    """

    def __init__(self, *, count: int) -> None:
        self.count = count

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit":
            return
        loggers = [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
        import numpy as np

        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        model: Any = pl_module.model
        for i in range(min(self.count, len(data.validation))):
            batch = collate(data.validation, np.array([i]), data.tokenizers, epoch=0, index=0).to(pl_module.device)
            training = model.training
            weights = cross_attention(model.eval(), batch.source, batch.target_in).float().cpu()
            model.train(training)
            if not trainer.is_global_zero:  # every process ran the model: under FSDP each holds a part of the weights
                continue
            source = data.tokenizers.source.pieces(batch.source[0].tolist())
            target = data.tokenizers.target.pieces(batch.target_out[0].tolist())
            for logger in loggers:
                figure = attention_figure(weights[:, 0].mean(dim=1), source, target)
                logger.experiment.add_figure(f"attention/{i}", figure, trainer.global_step)
