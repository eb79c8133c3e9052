"""Weight decay acts on matrices only, and every parameter is in exactly one group."""

from functools import partial

import pytest
import torch

from crosslight.models.encoder_decoder import EncoderDecoder
from crosslight.nn.positions import LearnedPositions
from crosslight.nn.residual import PreNorm
from crosslight.optim.groups import parameter_groups


def small_model(tie: str) -> EncoderDecoder:
    return EncoderDecoder(
        d_model=12,
        d_ff=20,
        num_heads=3,
        num_encoder_layers=1,
        num_decoder_layers=2,
        activation="swiglu",
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        tie=tie,
        encoder_window=None,
        positions=partial(LearnedPositions, max_positions=9),
        residual=PreNorm,
        source_vocab_size=13,
        target_vocab_size=13,
        pad_id=0,
    )


@pytest.mark.parametrize(("tie", "output_decays"), [("none", True), ("target_output", False), ("all", False)])
def test_every_parameter_is_in_one_group_and_only_matrices_decay(tie, output_decays):
    model = small_model(tie)
    groups = parameter_groups(model)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    optimizer = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.5)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()  # without gradients, decay alone moves anything
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    expected = {name for name in before if name.endswith("weight") and "norm" not in name and "table" not in name} - {
        "encoder.last.weight",
        "decoder.last.weight",
    }
    assert ("output.weight" in expected) == output_decays
    assert moved == expected


def test_frozen_parameters_are_in_no_group():
    model = small_model("all")
    model.encoder.requires_grad_(False)
    grouped = {id(p) for group in parameter_groups(model) for p in group["params"]}
    assert grouped == {id(p) for p in model.parameters() if p.requires_grad}
