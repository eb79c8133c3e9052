"""Shared embedding tables, and how many parameters each part of a model has."""

import pytest
import torch
from hydra.utils import instantiate

from crosslight.config.compose import compose
from crosslight.errors import ConfigError
from crosslight.models.encoder_decoder import parameters_by_part
from crosslight.nn.residual import PreNorm

D_MODEL, D_FF = 12, 20


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def stack(layers: int, attentions: int, d_model: int, d_ff: int) -> int:
    """Parameters of a stack by hand: every sublayer has a norm, keys have no bias."""
    attention, feed = 4 * linear(d_model, d_model) - d_model, linear(d_model, d_ff) + linear(d_ff, d_model)
    return layers * (attentions * attention + feed + (attentions + 1) * 2 * d_model)


@pytest.mark.parametrize(
    ("tie", "sizes", "output_shared", "source_shared", "parts"),
    [
        ("none", (11, 13), False, False, (11, 13, 13)),
        ("target_output", (11, 13), True, False, (11, 13, 0)),
        ("all", (13, 13), True, True, (13, 0, 0)),
    ],
)
def test_tying_shares_just_the_tables_it_names(build, tie, sizes, output_shared, source_shared, parts):
    model = build(tie=tie, source_vocab_size=sizes[0], target_vocab_size=sizes[1])
    source, target = model.source_embedding.table.weight, model.target_embedding.table.weight
    assert (model.output.weight is target, source is target) == (output_shared, source_shared)
    assert parameters_by_part(model) == {
        "source_embedding": parts[0] * D_MODEL,
        "target_embedding": parts[1] * D_MODEL,
        "encoder": stack(2, 1, D_MODEL, D_FF),
        "decoder": stack(3, 2, D_MODEL, D_FF),
        "output": parts[2] * D_MODEL,
    }
    assert sum(parameters_by_part(model).values()) == sum(p.numel() for p in model.parameters())


def test_learned_positions_and_the_last_norms_are_counted_where_they_are(build):
    counts = parameters_by_part(build(positions="learned", residual=PreNorm))
    assert counts["source_embedding"] == (11 + 64) * D_MODEL
    assert counts["encoder"] == stack(2, 1, D_MODEL, D_FF) + 2 * D_MODEL
    assert counts["decoder"] == stack(3, 2, D_MODEL, D_FF) + 2 * D_MODEL


def test_tables_stay_tied_through_a_step_and_through_saving(build):
    model = build(tie="all", source_vocab_size=13)
    before = model.output.weight.detach().clone()
    model(torch.tensor([[3, 4]]), torch.tensor([[1, 5, 6]])).square().sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    again = build(tie="all", source_vocab_size=13, seed=2)
    again.load_state_dict(model.state_dict())
    for tied in (model, again):
        assert tied.output.weight is tied.source_embedding.table.weight is tied.target_embedding.table.weight
        assert not torch.equal(tied.output.weight, before)
    assert torch.equal(again.output.weight, model.output.weight)


def test_tying_all_with_two_vocabularies_is_refused_with_both_sizes(build):
    with pytest.raises(ConfigError, match=r"model\.tie: 'all' needs .* source has 11 pieces and the target 13; use"):
        build(tie="all")


@pytest.mark.parametrize(
    ("name", "d_model", "d_ff", "published"), [("base", 512, 2048, 65e6), ("big", 1024, 4096, 213e6)]
)
def test_base_and_big_have_the_size_of_the_paper(name, d_model, d_ff, published):
    config = compose([f"model={name}", "data=copy"]).model
    with torch.device("meta"):
        model = instantiate(config, source_vocab_size=37000, target_vocab_size=37000, pad_id=0)
    total = sum(parameters_by_part(model).values())
    assert total == 37000 * d_model + stack(6, 1, d_model, d_ff) + stack(6, 2, d_model, d_ff)
    assert total == pytest.approx(published, rel=0.03)
