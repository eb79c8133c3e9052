"""Dropout's draws are honest: the right share, the right expectation, independent, and a function of the seed."""

import math

import pytest
import torch

from crosslight.nn.dropout import Dropout, dropped

ONES = torch.ones(500, 1000)


@pytest.mark.parametrize("p", [0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 0.999])
def test_the_share_of_zeros_is_the_probability_and_the_mean_stays_one(p: float) -> None:
    torch.manual_seed(1)
    found = dropped(ONES, p)
    zeros = (found == 0).double().mean().item()
    assert abs(zeros - p) < p / 50 + 5 * math.sqrt(p * (1 - p) / ONES.numel())
    assert abs(found.double().mean().item() - 1) < 5 * math.sqrt(p / (1 - p) / ONES.numel()) + 1e-6
    assert len(found.unique()) == 2


def test_neighbours_rows_and_repeated_draws_are_independent() -> None:
    torch.manual_seed(1)
    one, other = ((dropped(ONES, 0.3) == 0).double() - 0.3 for _ in range(2))
    variance = 0.21
    for lag in range(1, 17):  # a word of 64 bits decides eight neighbours
        correlation = (one[:, lag:] * one[:, :-lag]).mean().item() / variance
        assert abs(correlation) < 5 / math.sqrt(ONES.numel()), lag
    assert abs((one[1:] * one[:-1]).mean().item() / variance) < 5 / math.sqrt(ONES.numel())
    assert abs((one * other).mean().item() / variance) < 5 / math.sqrt(ONES.numel())


def test_the_seed_of_torchs_generator_decides_the_draws() -> None:
    def draw(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return dropped(ONES, 0.1)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


@pytest.mark.parametrize("shape", [(), (1,), (7, 3), (2, 5, 9)])
def test_gradient_is_the_factor_that_the_value_had(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.float64).requires_grad_()
    y = torch.randn(shape, dtype=torch.float64).requires_grad_()
    dropout = Dropout(0.4)
    torch.manual_seed(3)
    out = dropout.added_to(x, y)
    torch.manual_seed(3)
    assert torch.allclose(out, x + dropout(y))  # the same draws, added by hand
    weight = torch.randn(shape, dtype=torch.float64)
    (out * weight).sum().backward()
    assert torch.equal(x.grad, weight)
    factor = torch.where(y == 0, 0.0, (out - x) / y).detach()
    torch.testing.assert_close(y.grad, weight * factor)


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (0.5, False)])
def test_without_probability_or_training_nothing_is_drawn(p: float, training: bool) -> None:
    before = torch.get_rng_state()
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    before = torch.get_rng_state()
    dropout = Dropout(p).train(training)
    assert torch.equal(dropout(x), x)
    assert torch.equal(dropout.added_to(x, y), x + y)
    assert torch.equal(torch.get_rng_state(), before)
