"""The attention weights of a trained model under teacher forcing, for pictures."""

import torch
from torch import nn

from crosslight.models.encoder_decoder import EncoderDecoder
from crosslight.nn.attention import MultiHeadAttention
from crosslight.shapes import Float, Int, Tensor


@torch.no_grad()
def cross_attention(
    model: EncoderDecoder, source: Int[Tensor, "batch source"], target_in: Int[Tensor, "batch target"]
) -> Float[Tensor, "layer batch head target source"]:
    """Where every decoder layer's heads look in the source while the target is read; rows sum to one."""
    kept: list[Tensor] = []

    def keep(attention: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(attention, MultiHeadAttention)
        query_input, key, _, mask = inputs
        kept.append(attention.weights(query_input, key, mask))

    attentions = [layer.get_submodule("cross_attention") for layer in model.decoder.layers]
    hooks = [attention.register_forward_pre_hook(keep) for attention in attentions]
    try:
        model(source, target_in)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(kept)
