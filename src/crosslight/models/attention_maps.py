"""The attention weights of a trained model under teacher forcing, for pictures."""

import math
from typing import Any

import torch
from torch import nn

from crosslight.models.encoder_decoder import EncoderDecoder
from crosslight.nn.attention import MultiHeadAttention, attention_scores, attention_weights
from crosslight.shapes import Float, Int, Tensor


@torch.no_grad()
def cross_attention(
    model: EncoderDecoder, source: Int[Tensor, "batch source"], target_in: Int[Tensor, "batch target"]
) -> Float[Tensor, "layer batch head target source"]:
    """Where every decoder layer's heads look in the source while the target is read; rows sum to one."""
    kept: list[Tensor] = []

    def keep(attention: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(attention, MultiHeadAttention)
        query, (key, _), mask = inputs
        kept.append(attention_weights(attention_scores(query, key, query.shape[-1] ** -0.5), mask))

    attentions = [layer.get_submodule("cross_attention") for layer in model.decoder.layers]
    hooks = [attention.register_forward_pre_hook(keep) for attention in attentions]
    try:
        model(source, target_in)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(kept)


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
