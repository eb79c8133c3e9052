"""Our layers and our whole model against torch.nn.Transformer with the same weights, in float64."""

import pytest
import torch
from torch import nn

from crosslight.models.encoder_decoder import EncoderDecoder
from crosslight.nn.attention import MultiHeadAttention
from crosslight.nn.masks import causal_mask, padding_mask
from crosslight.nn.residual import PostNorm, PreNorm

SOURCE = torch.tensor([[5, 3, 9, 2, 7], [8, 1, 4, 0, 0]])
TARGET = torch.tensor([[1, 6, 12, 3], [1, 9, 0, 0]])
BOTH = pytest.mark.parametrize("residual", [PostNorm, PreNorm])


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


def copied_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    unused = torch.randn_like(ours.query.bias)  # torch has a bias of keys, which the softmax takes out again
    theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, unused, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


@torch.no_grad()
def torch_layer(ours: nn.Module, kind: type, residual: type, activation: str) -> nn.Module:
    """torch's layer with the weights of ours."""
    theirs = kind(
        12, 3, 20, 0.0, activation, batch_first=True, norm_first=residual is PreNorm, dtype=torch.float64
    ).eval()
    copied_attention(ours.self_attention, theirs.self_attn)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    around = [ours.around_self, ours.around_feed]
    if kind is nn.TransformerDecoderLayer:
        copied_attention(ours.cross_attention, theirs.multihead_attn)
        around.insert(1, ours.around_cross)
    for number, wrapped in enumerate(around, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(wrapped.norm.state_dict())
    return theirs


@torch.no_grad()
def torch_transformer(model: EncoderDecoder, residual: type) -> nn.Transformer:
    """torch's whole model with the weights of ours; after post-norm layers it has no further norm, as in the paper."""
    theirs = nn.Transformer(
        12, 3, 2, 3, 20, 0.0, batch_first=True, norm_first=residual is PreNorm, dtype=torch.float64
    ).eval()
    for stack, copy, layer in (
        (model.encoder, theirs.encoder, nn.TransformerEncoderLayer),
        (model.decoder, theirs.decoder, nn.TransformerDecoderLayer),
    ):
        copy.layers = nn.ModuleList(torch_layer(ours, layer, residual, "relu") for ours in stack.layers)
        if residual is PreNorm:
            copy.norm.load_state_dict(stack.last.state_dict())
        else:
            copy.norm = None
    return theirs


def inputs(*lengths: int) -> list[torch.Tensor]:
    torch.manual_seed(3)
    return [torch.randn(2, length, 12, dtype=torch.float64, requires_grad=True) for length in lengths]


@BOTH
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_equals_torch(build, residual, activation):
    ours = build(residual=residual, activation=activation).double().encoder.layers[0]
    theirs = torch_layer(ours, nn.TransformerEncoderLayer, residual, activation)
    (x,) = inputs(5)
    mask = padding_mask(SOURCE, 0)
    found, expected = ours(x, mask), theirs(x, src_key_padding_mask=SOURCE == 0)
    same(found, expected)
    same(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)))
    same(ours(x, mask & causal_mask(5, 0)), theirs(x, ~causal_mask(5, 0)[0, 0], SOURCE == 0))
    assert (ours(x, torch.ones_like(mask)) - found).abs().max() > 0.01


@BOTH
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer_equals_torch(build, residual, activation):
    ours = build(residual=residual, activation=activation).double().decoder.layers[0]
    theirs = torch_layer(ours, nn.TransformerDecoderLayer, residual, activation)
    x, memory = inputs(4, 5)
    causal, source_mask = causal_mask(4, 0), padding_mask(SOURCE, 0)
    padded = {"tgt_mask": ~causal[0, 0], "memory_key_padding_mask": SOURCE == 0}
    found, _ = ours(x, ours.start(memory), causal, source_mask, 0)
    expected = theirs(x, memory, **padded)
    same(found, expected)
    for wanted in (x, memory):
        same(*(torch.autograd.grad(y.square().sum(), wanted, retain_graph=True)[0] for y in (found, expected)))
    masked, _ = ours(x, ours.start(memory), causal & padding_mask(TARGET, 0), source_mask, 0)
    same(masked, theirs(x, memory, **padded, tgt_key_padding_mask=TARGET == 0))
    assert (masked - found).abs().max() > 0.01


@BOTH
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("tie", ["none", "target_output"])
def test_whole_model_equals_torch(build, residual, tie):
    model = build(residual=residual, tie=tie).double()
    transformer = torch_transformer(model, residual)
    hidden = transformer(
        model.source_embedding(SOURCE),
        model.target_embedding(TARGET),
        tgt_mask=~causal_mask(4, 0)[0, 0],
        src_key_padding_mask=SOURCE == 0,
        memory_key_padding_mask=SOURCE == 0,
    )
    same(model(SOURCE, TARGET), hidden @ model.output.weight.T)
