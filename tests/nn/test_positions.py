"""Positions by formula: sinusoids, rotations, tables that grow, and a learned table that ends."""

import math
from functools import partial

import pytest
import torch

from crosslight.errors import ConfigError, DataError
from crosslight.nn.positions import LearnedPositions, Positions, RotaryPositions, SinusoidalPositions

BATCH, HEADS, HEAD_DIM, D_MODEL = 2, 3, 4, 12
KINDS = [Positions, SinusoidalPositions, partial(LearnedPositions, max_positions=700), RotaryPositions]


@pytest.mark.parametrize("position", [0, 1, 9, 255, 256, 300, 4000])
def test_sinusoids_are_sines_in_even_dimensions_and_cosines_in_odd_ones_at_any_position(position):
    added = SinusoidalPositions(D_MODEL).embed(torch.zeros(BATCH, 3, D_MODEL), position)
    for step in range(3):
        angles = [(position + step) / 10000 ** (2 * i / D_MODEL) for i in range(D_MODEL // 2)]
        by_hand = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        torch.testing.assert_close(added[1, step], torch.tensor(by_hand), rtol=0, atol=1e-6)


@pytest.mark.parametrize("position", [0, 1, 9, 255, 256, 4000])
def test_rotary_turns_each_pair_of_dimensions_by_its_own_angle(position):
    heads = torch.randn(BATCH, HEADS, 2, HEAD_DIM)
    turned = RotaryPositions(head_dim=HEAD_DIM, base=100.0).rotate(heads, position)
    half = HEAD_DIM // 2
    for i in range(half):
        pair = torch.complex(heads[..., i], heads[..., i + half])
        steps = torch.arange(position, position + 2, dtype=torch.float64)
        expected = pair * torch.polar(torch.ones(2, dtype=torch.float64), steps * 100.0 ** (-2 * i / HEAD_DIM))
        found = torch.complex(turned[..., i], turned[..., i + half])
        torch.testing.assert_close(found, expected.to(torch.complex64), rtol=0, atol=1e-5)


def test_rotary_scores_depend_on_the_distance_only_and_norms_are_kept():
    positions = RotaryPositions(head_dim=HEAD_DIM)
    query, key = torch.randn(1, HEADS, 1, HEAD_DIM), torch.randn(1, HEADS, 1, HEAD_DIM)

    def score(query_at: int, key_at: int) -> torch.Tensor:
        return (positions.rotate(query, query_at) * positions.rotate(key, key_at)).sum(-1)

    for distance in (-7, 0, 3, 90):
        for shift in (11, 250, 600):
            torch.testing.assert_close(
                score(100 + distance, 100), score(shift + 100 + distance, shift + 100), rtol=0, atol=1e-4
            )
    assert (score(103, 100) - score(100, 100)).abs().min() > 1e-3
    assert (score(103, 100) - score(97, 100)).abs().min() > 1e-3  # before and behind are told apart
    torch.testing.assert_close(positions.rotate(query, 321).norm(dim=-1), query.norm(dim=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_positions_of_a_piece_are_those_of_the_whole(kind):
    positions = kind(d_model=D_MODEL, head_dim=HEAD_DIM)
    x, heads = torch.randn(BATCH, 600, D_MODEL), torch.randn(BATCH, HEADS, 600, HEAD_DIM)
    embedded = torch.cat([positions.embed(x[:, :7], 0), positions.embed(x[:, 7:], 7)], dim=1)
    rotated = torch.cat([positions.rotate(heads[:, :, :7], 0), positions.rotate(heads[:, :, 7:], 7)], dim=2)
    fresh = kind(d_model=D_MODEL, head_dim=HEAD_DIM)
    fresh.load_state_dict(positions.state_dict())
    assert torch.equal(embedded, fresh.embed(x, 0))
    assert torch.equal(rotated, fresh.rotate(heads, 0))
    changes_embeddings, changes_heads = not torch.equal(embedded, x), not torch.equal(rotated, heads)
    assert (changes_embeddings, changes_heads) == {
        Positions: (False, False),
        RotaryPositions: (False, True),
    }.get(kind, (True, False))


@pytest.mark.parametrize("kind", [SinusoidalPositions, RotaryPositions])
def test_table_grown_in_a_validation_can_still_be_trained_with(kind):
    # Lightning validates in inference mode, whose tensors may not be saved for a backward pass.
    positions = kind(d_model=D_MODEL, head_dim=HEAD_DIM)
    x, heads = torch.randn(BATCH, 300, D_MODEL), torch.randn(BATCH, HEADS, 300, HEAD_DIM)
    with torch.inference_mode():
        positions.embed(x, 0), positions.rotate(heads, 0)
    x.requires_grad_(), heads.requires_grad_()
    (positions.embed(x, 0).square().sum() + positions.rotate(heads, 0).square().sum()).backward()
    assert x.grad.isfinite().all()
    assert heads.grad.isfinite().all()


def test_tables_that_follow_from_a_formula_are_not_saved():
    assert not SinusoidalPositions(D_MODEL).state_dict()
    assert not RotaryPositions(head_dim=HEAD_DIM).state_dict()


def test_learned_positions_end_with_a_message_that_names_the_setting():
    positions = LearnedPositions(D_MODEL, max_positions=32)
    assert positions.limit == 32
    x = torch.randn(BATCH, 3, D_MODEL)
    torch.testing.assert_close(positions.embed(x, 29) - x, positions.table.weight[29:].expand_as(x))
    with pytest.raises(DataError) as raised:
        positions.embed(x, 30)
    assert str(raised.value) == (
        "a sequence of 33 tokens does not fit model.positions.max_positions=32; "
        "shorten it, or train with max_positions of at least 33"
    )


def test_odd_dimensions_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"model\.d_model: 7 is odd"):
        SinusoidalPositions(7)
    with pytest.raises(ConfigError, match=r"head_dim = d_model / num_heads = 5 is odd"):
        RotaryPositions(head_dim=5)
