"""Objectives: hand values, padding that weighs nothing, and what each becomes where it should change nothing."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from crosslight import build
from crosslight.batches import Batch
from crosslight.config.compose import compose
from crosslight.errors import ConfigError
from crosslight.losses import symmetric_divergence
from crosslight.objectives.base import Objective
from crosslight.objectives.cross_entropy import CrossEntropy
from crosslight.objectives.distillation import Distillation
from crosslight.objectives.r_drop import RDrop

PAD, VOCAB = 2, 5
FIRST = torch.tensor([[1.0, 2, 3, 4, 4], [4, 2, 1, 4, 3], [3, 4, 4, 2, 1]])  # probabilities 2 ** -these, sums of 1
SECOND = torch.tensor([[2.0, 1, 3, 4, 4], [4, 2, 1, 4, 3], [3, 4, 4, 1, 2]])
REFERENCE = torch.tensor([0, 1, 3])  # 1, 2 and 2 halvings in FIRST; 2, 2 and 1 in SECOND


class Fixed(nn.Module):
    """A model whose logits are given, whatever it reads."""

    def __init__(self, *rows: torch.Tensor, length: int = 3, junk: float = 5.0) -> None:
        super().__init__()
        logits = torch.randn(len(rows), length, VOCAB, generator=torch.Generator().manual_seed(length)) * junk
        for row, halvings in enumerate(rows):
            logits[row, :3] = 0.7 - halvings * math.log(2)
        self.logits = nn.Parameter(logits)

    def forward(self, source: torch.Tensor, target_in: torch.Tensor, head: Any = functional.linear) -> Any:
        assert len(source) == len(target_in) == len(self.logits)
        return self.logits if head is functional.linear else head(self.logits, torch.eye(VOCAB))


def batch_of(length: int, reference: torch.Tensor = REFERENCE) -> Batch:
    target = torch.full((1, length), PAD)
    target[0, : len(reference)] = reference
    return Batch(torch.ones(1, 4, dtype=torch.long), target, target, (0,))


def distillation(teacher: nn.Module, weight: float = 0.75, temperature: float = 1.0, smoothing: float = 0.0):
    return Distillation(
        teacher="run",
        weight=weight,
        temperature=temperature,
        label_smoothing=smoothing,
        pad_id=PAD,
        load_teacher=lambda path: teacher,
    )


r_drop = partial(RDrop, label_smoothing=0.0, pad_id=PAD)

# In halvings, so that a hand can add them up. The references cost 5 in FIRST and 5 in SECOND. Only the first and the
# last row differ, in that a 1/2 and a 1/4 change places: that is a divergence of 1/4 in each direction.
CASES: dict[str, tuple[Callable[[int], tuple[Objective, nn.Module]], float]] = {
    "cross_entropy": (lambda n: (CrossEntropy(label_smoothing=0.1, pad_id=PAD), Fixed(FIRST, length=n)), 5.34),
    "r_drop": (lambda n: (r_drop(alpha=3.0), Fixed(FIRST, SECOND, length=n)), 5 + 3 / 2 * (1 / 4 + 1 / 4)),
    # the teacher's entropy is 15/8 a token; where the student differs it costs 1/4 more
    "distillation": (
        lambda n: (distillation(Fixed(SECOND, length=n, junk=99.0)), Fixed(FIRST, length=n)),
        0.25 * 5 + 0.75 * (3 * 15 / 8 + 2 / 4),
    ),
}


@pytest.mark.parametrize("kind", list(CASES))
@pytest.mark.parametrize("length", [3, 10, 100])
def test_value_is_the_hand_value_and_padding_changes_neither_it_nor_the_gradient(kind: str, length: int) -> None:  # F01
    make, halvings = CASES[kind]
    objective, model = make(length)
    loss = objective(model, batch_of(length))
    assert loss.total.item() == pytest.approx(halvings * math.log(2), abs=1e-6)
    assert loss.nll.item() == pytest.approx(5 * math.log(2), abs=1e-6)
    assert loss.count.item() == 3
    loss.total.backward()
    gradient: Any = model.logits.grad
    assert (gradient[:, 3:] == 0).all()
    assert (gradient[:, :3].abs().sum(dim=-1) > 1e-3).all()
    objective, short = make(3)
    objective(short, batch_of(3)).total.backward()
    torch.testing.assert_close(gradient[:, :3], short.logits.grad)


@pytest.mark.parametrize("kind", list(CASES))
@pytest.mark.parametrize("junk", [math.inf, math.nan])
def test_broken_logits_at_padding_weigh_nothing(kind: str, junk: float) -> None:
    make, halvings = CASES[kind]
    objective, model = make(10)
    models = [model, objective.teacher] if isinstance(objective, Distillation) else [model]
    for one in models:
        one.logits.data[:, 3:] = junk
    loss = objective(model, batch_of(10))
    loss.total.backward()
    assert loss.total.item() == pytest.approx(halvings * math.log(2), abs=1e-6)
    assert (model.logits.grad[:, 3:] == 0).all()


@pytest.mark.parametrize("kind", list(CASES))
def test_batch_of_only_padding_costs_nothing(kind: str) -> None:  # F01
    objective, model = CASES[kind][0](10)
    loss = objective(model, batch_of(10, REFERENCE[:0]))
    loss.total.backward()
    assert (loss.total.item(), loss.nll.item(), loss.count.item()) == (0, 0, 0)
    assert (model.logits.grad == 0).all()


def test_divergence_and_its_gradient_equal_torchs() -> None:
    torch.manual_seed(1)
    one, other = (torch.randn(2, 4, VOCAB, requires_grad=True) for _ in range(2))
    real = torch.tensor([[True, True, True, False], [True, True, False, False]])
    ours = symmetric_divergence(one, other, real)
    p, q = (logits[real].log_softmax(dim=-1) for logits in (one, other))
    both = (functional.kl_div(a, b, reduction="sum", log_target=True) for a, b in ((p, q), (q, p)))
    theirs: Any = sum(both) / 2
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, (one, other)), torch.autograd.grad(theirs, (one, other)))


def transformer(*overrides: str) -> nn.Module:
    torch.manual_seed(3)
    sizes = ["d_model=12", "d_ff=20", "num_heads=3", "num_encoder_layers=1", "num_decoder_layers=2", "dropout=0.0"]
    node = build.plain(compose([f"model.{size}" for size in (*sizes, *overrides)]))["model"]
    return build.make(node, source_vocab_size=11, target_vocab_size=11, pad_id=PAD).train()


SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 3, PAD, PAD]])
TARGET_IN, TARGET_OUT = torch.tensor([[0, 5, 6, 7], [0, 4, PAD, PAD]]), torch.tensor([[5, 6, 7, 1], [4, 1, PAD, PAD]])
PAIRS = Batch(SOURCE, TARGET_IN, TARGET_OUT, (0, 1))


def scored(objective: Objective, model: nn.Module) -> tuple[float, list[torch.Tensor]]:
    model.zero_grad()
    loss = objective(model, PAIRS)
    loss.total.backward()
    assert loss.count.item() == 6
    return loss.total.item(), [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_r_drop_without_dropout_is_cross_entropy() -> None:
    model = transformer()
    plain = scored(CrossEntropy(label_smoothing=0.1, pad_id=PAD), model)
    twice = scored(RDrop(alpha=5.0, label_smoothing=0.1, pad_id=PAD), model)
    assert twice[0] == pytest.approx(plain[0], rel=1e-5)
    torch.testing.assert_close(twice[1], plain[1], rtol=1e-4, atol=1e-5)


def test_r_drop_asks_two_dropout_passes_to_agree() -> None:
    model = transformer("dropout=0.3")
    totals = {}
    for alpha in (0.0, 1.0, 4.0):
        torch.manual_seed(7)
        totals[alpha] = scored(r_drop(alpha=alpha), model)[0]
    divergence = 2 * (totals[1.0] - totals[0.0])
    assert divergence > 0.01
    assert totals[4.0] == pytest.approx(totals[0.0] + 4 / 2 * divergence, rel=1e-4)
    torch.manual_seed(7)
    first, second = model(torch.cat([SOURCE, SOURCE]), torch.cat([TARGET_IN, TARGET_IN])).chunk(2)
    assert divergence == pytest.approx(symmetric_divergence(first, second, TARGET_OUT != PAD).item(), rel=1e-3)


def test_distillation_from_oneself_pulls_nowhere_and_weight_zero_is_cross_entropy() -> None:
    model, teacher = transformer(), transformer()
    _, gradients = scored(distillation(teacher, weight=1.0), model)
    assert max(g.abs().max().item() for g in gradients) < 1e-5
    _, gradients = scored(distillation(teacher, weight=1.0, temperature=2.0), model)
    assert max(g.abs().max().item() for g in gradients) > 1e-2
    plain = scored(CrossEntropy(label_smoothing=0.1, pad_id=PAD), model)
    alone = scored(distillation(transformer("num_decoder_layers=1"), weight=0.0, smoothing=0.1), model)
    assert alone[0] == pytest.approx(plain[0])
    torch.testing.assert_close(alone[1], plain[1])


def test_a_teacher_at_temperature_two_is_as_sure_as_the_root_of_its_probabilities() -> None:
    objective, model = distillation(Fixed(2 * SECOND), weight=1.0, temperature=2.0), Fixed(FIRST)
    assert objective(model, batch_of(3)).total.item() == pytest.approx((3 * 15 / 8 + 2 / 4) * math.log(2), abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: r_drop(alpha=-1.0), "task.objective.alpha: -1.0 is negative; give 0 or more"),
        (lambda: distillation(nn.Identity(), weight=1.5), "task.objective.weight: 1.5 is not in [0, 1]"),
        (lambda: distillation(nn.Identity(), temperature=0.0), "task.objective.temperature: 0.0 is not above 0"),
        (lambda: CrossEntropy(label_smoothing=1.0, pad_id=PAD), "task.objective.label_smoothing: 1.0 is not in [0, 1)"),
    ],
)
def test_impossible_settings_are_refused_by_name(make: Callable[[], Objective], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == message
