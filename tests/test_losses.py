"""The label-smoothed loss: a sum over real tokens with hand values, torch's value, and padding that weighs nothing."""

import math

import pytest
import torch
from torch.nn import functional

from crosslight.errors import ConfigError
from crosslight.losses import LabelSmoothedCrossEntropy

PAD, VOCAB = 2, 5
HALVINGS = torch.tensor([[1.0, 2, 3, 4, 4], [4, 2, 1, 4, 3], [3, 4, 4, 2, 1]])  # probabilities 2 ** -these, sums of 1
REFERENCE = torch.tensor([0, 1, 3])  # 1, 2 and 2 halvings


def padded_to(length: int, junk: float = 5.0) -> tuple[torch.Tensor, torch.Tensor]:
    """The three tokens above, shifted by a constant that a softmax ignores, and padding with random logits."""
    logits = torch.randn(1, length, VOCAB, generator=torch.Generator().manual_seed(length)) * junk
    logits[0, :3] = 0.7 - HALVINGS * math.log(2)
    target = torch.full((1, length), PAD)
    target[0, :3] = REFERENCE
    return logits.requires_grad_(), target


@pytest.mark.parametrize("length", [3, 10, 100])
def test_padding_changes_neither_value_nor_gradient_of_the_smoothed_loss(length):  # F01
    logits, target = padded_to(length)
    loss = LabelSmoothedCrossEntropy(0.1, PAD)(logits, target)
    # 0.9 * (1 + 2 + 2) halvings of the references, 0.1 * 3 tokens * 14 / 5 halvings on average over the pieces
    assert loss.total.item() == pytest.approx((0.9 * 5 + 0.1 * 3 * 14 / 5) * math.log(2), abs=1e-6)
    assert loss.nll.item() == pytest.approx(5 * math.log(2), abs=1e-6)
    assert loss.count.item() == 3
    loss.total.backward()
    assert (logits.grad[0, 3:] == 0).all()
    uniform_and_reference = 0.02 + 0.9 * functional.one_hot(REFERENCE, VOCAB)
    torch.testing.assert_close(logits.grad[0, :3], 2**-HALVINGS - uniform_and_reference)


@pytest.mark.parametrize("junk", [math.inf, math.nan])
def test_even_broken_logits_at_padding_weigh_nothing(junk):
    logits, target = padded_to(10, junk)
    loss = LabelSmoothedCrossEntropy(0.1, PAD)(logits, target)
    loss.total.backward()
    assert loss.total.item() == pytest.approx(5.34 * math.log(2), abs=1e-6)
    assert (logits.grad[0, 3:] == 0).all()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_batch_of_only_padding_costs_nothing(smoothing):  # F01
    logits = torch.randn(2, 4, VOCAB, requires_grad=True)
    loss = LabelSmoothedCrossEntropy(smoothing, PAD)(logits, torch.full((2, 4), PAD))
    loss.total.backward()
    assert (loss.total.item(), loss.nll.item(), loss.count.item()) == (0, 0, 0)
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_loss_equals_torch_and_its_nll_is_never_smoothed(smoothing, dtype):
    torch.manual_seed(1)
    logits = (torch.randn(2, 4, VOCAB) * 3).to(dtype).requires_grad_()
    target = torch.tensor([[0, 1, 3, 4], [4, 0, PAD, PAD]])
    loss = LabelSmoothedCrossEntropy(smoothing, PAD)(logits, target)

    def theirs(label_smoothing: float) -> torch.Tensor:
        return functional.cross_entropy(
            logits.float().flatten(0, 1),
            target.flatten(),
            ignore_index=PAD,
            reduction="sum",
            label_smoothing=label_smoothing,
        )

    torch.testing.assert_close(loss.total, theirs(smoothing), rtol=0, atol=1e-5)
    torch.testing.assert_close(loss.nll, theirs(0.0), rtol=0, atol=1e-5, check_dtype=False)
    torch.testing.assert_close(*(torch.autograd.grad(total, logits)[0] for total in (loss.total, theirs(smoothing))))
    assert not loss.nll.requires_grad
    assert loss.count.item() == 6


def test_total_of_a_batch_is_the_sum_of_its_sentences():
    torch.manual_seed(2)
    loss = LabelSmoothedCrossEntropy(0.1, PAD)
    logits, target = torch.randn(3, 4, VOCAB), torch.tensor([[0, 1, 3, 4], [4, PAD, PAD, PAD], [1, 1, PAD, PAD]])
    parts = [loss(logits[i : i + 1], target[i : i + 1]) for i in range(3)]
    whole = loss(logits, target)
    assert whole.total.item() == pytest.approx(sum(part.total.item() for part in parts), abs=1e-5)
    assert whole.nll.item() == pytest.approx(sum(part.nll.item() for part in parts), abs=1e-5)
    assert whole.count.item() == sum(part.count.item() for part in parts) == 7


@pytest.mark.parametrize("smoothing", [-0.1, 1.0])
def test_impossible_smoothing_is_refused_by_name(smoothing):
    with pytest.raises(ConfigError, match=rf"task\.objective\.label_smoothing: {smoothing} is not in \[0, 1\)"):
        LabelSmoothedCrossEntropy(smoothing, PAD)
