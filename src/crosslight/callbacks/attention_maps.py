"""Cross-attention heat maps of a few fixed validation sentences in TensorBoard, with the pieces on the axes."""

import math
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger

from crosslight.data.collate import collate
from crosslight.models.attention_maps import cross_attention
from crosslight.shapes import Float, Tensor


class AttentionMaps(Callback):
    """The first `count` validation sentences with their references: one panel a decoder layer, heads averaged.

    The reference is fixed, so the slider of TensorBoard shows one sentence in the course of the training.
    """

    def __init__(self, *, count: int) -> None:
        self.count = count

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
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


def attention_figure(weights: Float[Tensor, "layer target source"], source: list[str], target: list[str]) -> Any:
    """A matplotlib figure with one heat map a layer; row t shows where the model looks to write piece t."""
    from matplotlib.figure import Figure

    layers = weights.shape[0]
    columns = math.ceil(math.sqrt(layers)) if layers > 3 else layers
    rows = math.ceil(layers / columns)
    width, height = min(16.0, max(2.5, 0.28 * len(source))), min(12.0, max(2.0, 0.24 * len(target)))  # inches
    figure = Figure(figsize=(width * columns + 1.2, (height + 0.9) * rows), dpi=120, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for panel in axes.flat[layers:]:
        panel.set_visible(False)
    for layer, panel in enumerate(axes.flat[:layers]):
        panel.imshow(torch.as_tensor(weights[layer]).numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_title(f"decoder layer {layer + 1}", fontsize=9)
        panel.set_xticks(range(len(source)), source, rotation=90, fontsize=7)
        panel.set_yticks(range(len(target)), target, fontsize=7)
    return figure
