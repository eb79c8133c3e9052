"""The cross-attention weights that pictures are drawn from, and the hooks that must not stay behind."""

import pytest
import torch

from crosslight.models.attention_maps import cross_attention

SOURCE = torch.tensor([[5, 3, 9, 2, 7], [8, 1, 4, 0, 0]])
TARGET = torch.tensor([[1, 6, 12, 3], [1, 9, 4, 8]])
LAYERS, BATCH, HEADS = 3, 2, 3


def hooks(model) -> list:
    return [hook for part in model.modules() for hook in (*part._forward_pre_hooks, *part._forward_hooks)]


def test_attention_maps_are_distributions_over_real_source_tokens(build, positions):
    maps = cross_attention(build(positions=positions), SOURCE, TARGET)
    assert maps.shape == (LAYERS, BATCH, HEADS, TARGET.shape[1], SOURCE.shape[1])
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(maps.shape[:-1]))
    assert (maps[:, 1, ..., 3:] == 0).all()
    assert not maps.requires_grad


def test_attention_maps_are_the_weights_the_model_works_with(build):
    model = build()
    maps = cross_attention(model, SOURCE, TARGET)
    state = model.encode(SOURCE)
    gathered = []
    for layer in model.decoder.layers:
        layer.cross_attention.output.register_forward_hook(lambda module, inputs, output: gathered.append(inputs[0]))
    model.decode(TARGET, state)
    for weights, layer, heads in zip(maps, state.layers, gathered, strict=True):
        expected = (weights @ layer.source[1]).transpose(1, 2).flatten(2)
        torch.testing.assert_close(heads, expected, rtol=0, atol=1e-5)


def test_hooks_are_gone_afterwards_even_if_the_model_fails(build):
    model = build(positions="learned")
    before = model(SOURCE, TARGET)
    cross_attention(model, SOURCE, TARGET)
    assert hooks(model) == []
    with pytest.raises(Exception, match="max_positions"):
        cross_attention(model, SOURCE, TARGET.repeat(1, 17))
    assert hooks(model) == []
    assert torch.equal(model(SOURCE, TARGET), before)
