"""The loss of a projection in chunks equals the loss of its logits, in value and gradients, whatever the chunks."""

from typing import Any

import pytest
import torch

from crosslight import projected_loss
from crosslight.losses import LabelSmoothedCrossEntropy, TokenLoss

BATCH, LENGTH, D_MODEL, VOCAB, PAD = 3, 7, 5, 11, 2


def inputs(dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden states, a weight and targets, some of which are padding."""
    torch.manual_seed(0)
    hidden = torch.randn(BATCH, LENGTH, D_MODEL, dtype=dtype) * 3
    weight = torch.randn(VOCAB, D_MODEL, dtype=dtype)
    target = torch.randint(3, VOCAB, (BATCH, LENGTH))
    target[1, 4:] = PAD
    return hidden.requires_grad_(), weight.requires_grad_(), target


def gradients(loss: TokenLoss, *of: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(loss.total * 0.3, of)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("logits_a_chunk", [1, 4 * VOCAB, 2**22])
def test_projected_loss_equals_the_loss_of_the_logits(monkeypatch: Any, smoothing: float, logits_a_chunk: int) -> None:
    monkeypatch.setattr(projected_loss, "CPU_LOGITS", logits_a_chunk)
    loss = LabelSmoothedCrossEntropy(smoothing, PAD)
    hidden, weight, target = inputs()
    expected, found = loss(hidden @ weight.T, target), loss.of_projection(hidden, weight, target)
    close = {"rtol": 1e-5, "atol": 1e-5}  # losses are summed in float32
    torch.testing.assert_close(found.total.double(), expected.total.double(), **close)
    torch.testing.assert_close(found.nll.double(), expected.nll.double(), **close)
    assert found.count == expected.count == BATCH * LENGTH - 3
    for one, other in zip(gradients(found, hidden, weight), gradients(expected, hidden, weight), strict=True):
        torch.testing.assert_close(one, other, **close)


def test_whatever_stands_at_padding_weighs_nothing() -> None:
    loss = LabelSmoothedCrossEntropy(0.1, PAD)
    hidden, weight, target = inputs(torch.float32)
    plain = loss.of_projection(hidden, weight, target)
    broken = hidden.detach().clone()
    broken[1, 4:] = torch.nan
    broken.requires_grad_()
    found = loss.of_projection(broken, weight, target)
    assert torch.equal(found.total, plain.total)
    by_hidden, by_weight = gradients(found, broken, weight)
    assert (by_hidden[1, 4:] == 0).all()
    assert torch.equal(by_weight, gradients(plain, hidden, weight)[1])


def test_a_reference_that_the_model_holds_impossible_costs_its_logit_and_not_infinity() -> None:
    hidden, target = torch.tensor([[[200.0]]], requires_grad=True), torch.tensor([[0]])
    weight = torch.tensor([[-1.0], [1.0]])
    assert LabelSmoothedCrossEntropy(0.0, PAD).of_projection(hidden, weight, target).total.item() == 400


def test_under_autocast_products_are_of_its_type_and_the_loss_is_close() -> None:
    loss = LabelSmoothedCrossEntropy(0.1, PAD)
    hidden, weight, target = inputs(torch.float32)
    expected = loss(hidden @ weight.T, target)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss.of_projection(hidden, weight, target)
    assert found.total.dtype == torch.float
    torch.testing.assert_close(found.total, expected.total, rtol=0.02, atol=0)
    for one, other in zip(gradients(found, hidden, weight), gradients(expected, hidden, weight), strict=True):
        assert one.dtype == torch.float
        assert torch.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.999
