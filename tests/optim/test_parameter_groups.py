"""Weight decay acts on matrices and on what is not exempt, and every parameter is in exactly one group."""

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
        embedding_dropout=0.0,
        layer_drop=0.0,
        tie=tie,
        encoder_window=None,
        positions=partial(LearnedPositions, max_positions=9),
        residual=PreNorm,
        source_vocab_size=13,
        target_vocab_size=13,
        pad_id=0,
    )


ALL = ("norms", "biases", "embeddings")


def kind_of(name: str, tie: str) -> str:
    """What a parameter of the model above is, by its name."""
    if name.endswith(".table.weight") or (name == "output.weight" and tie != "none"):
        return "embeddings"
    if name.endswith(".bias"):
        return "biases"
    return "norms" if "norm." in name or ".last." in name else "matrices"


@pytest.mark.parametrize("no_decay", [ALL, (), ("biases",), ("norms", "embeddings")])
@pytest.mark.parametrize("tie", ["none", "target_output", "all"])
def test_every_parameter_is_in_one_group_and_what_is_not_exempt_decays(tie, no_decay):
    model = small_model(tie)
    names = [name for name, _ in model.named_parameters()]
    assert {kind_of(name, tie) for name in names} == {"matrices", *ALL}
    assert {"source_embedding.positions.table.weight", "decoder.last.weight", "output.weight"} & set(names)
    groups = parameter_groups(model, no_decay)
    grouped = [id(p) for group in groups for p in group["params"]]
    assert sorted(grouped) == sorted(id(p) for p in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
            parameter.grad = torch.zeros_like(parameter)
    torch.optim.AdamW(groups, lr=0.1, weight_decay=0.5, fused=True).step()  # without gradients, decay alone acts
    for name, parameter in model.named_parameters():
        value = 1.0 if kind_of(name, tie) in no_decay else 1 - 0.1 * 0.5
        torch.testing.assert_close(parameter, torch.full_like(parameter, value))


def test_frozen_parameters_are_in_no_group():
    model = small_model("all")
    model.encoder.requires_grad_(False)
    grouped = {id(p) for group in parameter_groups(model, ALL) for p in group["params"]}
    assert grouped == {id(p) for p in model.parameters() if p.requires_grad}
