"""Feed-forward networks by formula, the residual connections around them, and the weights they start with."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from crosslight.errors import ConfigError
from crosslight.nn.embedding import Embedding
from crosslight.nn.feed_forward import feed_forward
from crosslight.nn.initialization import initialize
from crosslight.nn.positions import Positions, SinusoidalPositions
from crosslight.nn.residual import PostNorm, PreNorm

BATCH, LENGTH, D_MODEL, D_FF = 2, 5, 6, 10


@pytest.mark.parametrize(("name", "activation"), [("relu", nn.ReLU()), ("gelu", nn.GELU())])
def test_plain_feed_forward_is_two_linear_layers_around_an_activation(name, activation):
    ours = feed_forward(D_MODEL, D_FF, name, 0.0)
    x = torch.randn(BATCH, LENGTH, D_MODEL)
    torch.testing.assert_close(ours(x), nn.Sequential(ours.inner, activation, ours.outer)(x))
    assert sum(p.numel() for p in ours.parameters()) == 2 * D_MODEL * D_FF + D_FF + D_MODEL


@pytest.mark.parametrize(
    ("name", "gate"),
    [("glu", torch.sigmoid), ("reglu", torch.relu), ("geglu", functional.gelu), ("swiglu", functional.silu)],
)
def test_gated_feed_forward_multiplies_by_its_gate_and_has_three_matrices(name, gate):
    ours = feed_forward(D_MODEL, D_FF, name, 0.0)
    x = torch.randn(BATCH, LENGTH, D_MODEL)
    gated = gate(x @ ours.gate.weight.T + ours.gate.bias) * (x @ ours.inner.weight.T + ours.inner.bias)
    torch.testing.assert_close(ours(x), gated @ ours.outer.weight.T + ours.outer.bias)
    if name == "glu":
        both = torch.cat([ours.inner(x), ours.gate(x)], dim=-1)
        torch.testing.assert_close(ours(x), ours.outer(functional.glu(both)))
    assert sum(p.numel() for p in ours.parameters()) == 3 * D_MODEL * D_FF + 2 * D_FF + D_MODEL


@pytest.mark.parametrize("name", ["relu", "swiglu"])
def test_feed_forward_treats_positions_alone_and_drops_what_leaves_the_activation(name):
    ours = feed_forward(D_MODEL, D_FF, name, 1.0)
    x = torch.randn(BATCH, LENGTH, D_MODEL)
    torch.testing.assert_close(ours.eval()(x)[1, 3], ours(x[1, 3]))
    torch.testing.assert_close(ours.train()(x), ours.outer.bias.expand_as(x))


def test_unknown_activation_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError) as raised:
        feed_forward(D_MODEL, D_FF, "rleu", 0.0)
    assert str(raised.value) == "model.activation: 'rleu' is not one of relu, gelu, glu, reglu, geglu, swiglu"


def test_post_norm_norms_the_sum_and_pre_norm_the_input():
    x, y = torch.randn(BATCH, LENGTH, D_MODEL), torch.randn(BATCH, LENGTH, D_MODEL)
    norm = nn.LayerNorm(D_MODEL)
    nn.init.normal_(norm.weight)
    post, pre = PostNorm(D_MODEL, 0.0), PreNorm(D_MODEL, 0.0)
    post.norm, pre.norm = norm, norm
    assert torch.equal(post.enter(x), x)
    assert torch.equal(post.leave(x, y), norm(x + y))
    assert torch.equal(pre.enter(x), norm(x))
    assert torch.equal(pre.leave(x, y), x + y)
    assert isinstance(post.after_stack(), nn.Identity)
    assert pre.after_stack().normalized_shape == (D_MODEL,)


def test_residual_dropout_drops_the_sublayer_and_never_the_stream():
    x, y = torch.randn(BATCH, LENGTH, D_MODEL), torch.randn(BATCH, LENGTH, D_MODEL)
    assert torch.equal(PreNorm(D_MODEL, 1.0).leave(x, y), x)
    torch.testing.assert_close(PostNorm(D_MODEL, 1.0).leave(x, y), functional.layer_norm(x, (D_MODEL,)))


def test_embeddings_are_scaled_by_the_root_of_d_model_before_positions_and_dropout():
    ids = torch.tensor([[1, 4, 2], [0, 3, 3]])
    embedding = Embedding(7, D_MODEL, positions=SinusoidalPositions(D_MODEL), dropout=1.0).eval()
    scaled = embedding.table.weight[ids] * D_MODEL**0.5
    torch.testing.assert_close(embedding(ids, 5), SinusoidalPositions(D_MODEL).embed(scaled, 5))
    assert (embedding.train()(ids) == 0).all()


def test_scaled_embeddings_start_at_size_one_and_matrices_within_the_xavier_bound():
    embedding = Embedding(3000, 64, positions=Positions(), dropout=0.0)
    network = feed_forward(64, 100, "swiglu", 0.0)
    initialize(embedding), initialize(network)
    assert embedding(torch.arange(3000)[None]).std().item() == pytest.approx(1, abs=0.02)
    bound = (6 / (64 + 100)) ** 0.5
    for part in (network.gate, network.inner, network.outer):
        assert part.weight.abs().max().item() == pytest.approx(bound, rel=0.01)
        assert (part.bias == 0).all()
