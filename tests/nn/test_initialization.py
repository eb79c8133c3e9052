"""Building a model without drawing its initial weights."""

import torch
from torch import nn

from crosslight.nn.initialization import Unfilled, initialize


class Part(nn.Module):
    """A matrix, a table, a norm, and numbers that are no parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.table, self.norm = nn.Linear(3, 5), nn.Embedding(7, 3), nn.LayerNorm(3)
        self.register_buffer("noise", torch.empty(4).normal_())
        initialize(self)


def test_nothing_is_drawn_for_a_model_whose_weights_come_from_a_file() -> None:
    before = torch.get_rng_state()
    with Unfilled():
        initialize(nn.ModuleList([nn.Linear(3, 5), nn.Embedding(7, 3), nn.LayerNorm(3)]))
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_from_a_file_fill_it_and_buffers_are_as_ever() -> None:
    original = Part()
    torch.manual_seed(2)
    with Unfilled():
        loaded = Part()
    torch.manual_seed(2)
    assert torch.equal(loaded.noise, torch.empty(4).normal_())
    loaded.load_state_dict(original.state_dict())
    x = torch.randn(2, 3)
    assert torch.equal(loaded.norm(x) @ loaded.matrix.weight.T, original.norm(x) @ original.matrix.weight.T)
