"""One update: sums divided once by the tokens of all its micro-batches, whatever the layout (cases F02, F03, F06)."""

import math
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from crosslight.batches import Batch
from crosslight.losses import TokenLoss
from crosslight.optim.schedules import Constant, Noam
from crosslight.tasks.base import Task, Update
from crosslight.tasks.randomness import position_seed, seed_position
from crosslight.tasks.reduction import FastReduction, OrderedReduction, Reduction


class Weighted(Task):
    """A task with one weight w, whose micro-batch of n tokens and sum s costs `w * s`."""

    def loss_of(self, batch: Batch) -> TokenLoss:
        total = self.model.weight.sum() * batch.source.sum()
        return TokenLoss(total, total.detach(), torch.tensor(batch.target_out.numel()))


def micro_batch(tokens: int, total: int, index: int = 0) -> Batch:
    target = torch.ones((1, tokens), dtype=torch.long)
    return Batch(torch.tensor([[total]]), target, target, (index,), index=index)


def placeholder() -> Batch:
    nothing = torch.zeros((1, 1), dtype=torch.long)
    return Batch(nothing, nothing, nothing, ())


def update(
    window: Sequence[Batch], reduction: Reduction, clip: float | None = None, done: int = 0
) -> tuple[float, Update]:
    """The weight after one step of SGD with rate 0.1 from 1, and what the task reports of the step."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    optimizer = partial(torch.optim.SGD, lr=0.1)
    task = Weighted(
        model,
        optimizer=optimizer,
        schedule=Constant(warmup_steps=0),
        reduction=reduction,
        clip=clip,
        seed=1,
        no_decay=[],
    )
    sgd: Any = task.configure_optimizers()
    sgd.optimizer = sgd
    trainer = SimpleNamespace(strategy=None, global_step=done, precision_plugin=SimpleNamespace(scaler=None))
    task.optimizers = lambda: sgd  # type: ignore[method-assign, assignment, return-value]
    task.manual_backward = lambda loss: loss.backward()  # type: ignore[method-assign, misc]
    task._trainer = trainer  # type: ignore[assignment]
    task.training_step(window, 0)
    assert task.last_update is not None
    return model.weight.item(), task.last_update


SHORT, LONG = micro_batch(10, 50), micro_batch(90, 180, 1)
LAYOUTS = {
    "one micro-batch": ([micro_batch(100, 230)], OrderedReduction(1)),
    "accumulated": ([SHORT, LONG], OrderedReduction(2)),
    "two virtual ranks": ([SHORT, LONG], OrderedReduction(1)),
    "two virtual ranks, accumulated, last window short": (
        [SHORT, LONG, placeholder(), placeholder()],
        OrderedReduction(2),
    ),
    "fast": ([SHORT, LONG], FastReduction(overlap=False)),
}


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_unequal_micro_batches_weigh_by_their_tokens(layout: str) -> None:
    weight, report = update(*LAYOUTS[layout])
    assert float(report.loss) == pytest.approx(2.30, abs=1e-6)  # (50 + 180) / 100, not (5 + 2) / 2
    assert weight == pytest.approx(1 - 0.1 * 2.30, abs=1e-6)
    assert float(report.tokens) == 100
    assert report.number == 1


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_clipping_sees_the_norm_of_the_whole_update(layout: str) -> None:
    weight, report = update(*LAYOUTS[layout], clip=0.5)
    assert float(report.gradient_norm) == pytest.approx(2.30, abs=1e-5)
    assert weight == pytest.approx(1 - 0.1 * 0.5, abs=1e-5)


@pytest.mark.parametrize("reduction", [OrderedReduction(1), FastReduction(overlap=False)])
def test_a_parameter_that_no_micro_batch_used_gets_zeros(reduction: Reduction) -> None:
    """Else an optimizer would leave it alone in some layouts and go on along its momentum in others."""
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3))

    def micro_step(batch: Batch) -> torch.Tensor:
        used.sum().backward()
        return torch.ones(3, dtype=torch.float64)

    local = reduction.accumulate([used, unused], [SHORT], micro_step, None)
    reduction.reduce([used, unused], local)
    assert unused.grad is not None
    assert torch.equal(unused.grad, torch.zeros(3))
    assert torch.equal(used.grad, torch.ones(2))  # type: ignore[arg-type]


def test_a_window_without_a_sentence_changes_nothing() -> None:
    weight, report = update([placeholder()], OrderedReduction(1))
    assert weight == 1.0
    assert math.isfinite(float(report.loss))


def test_the_learning_rate_follows_updates_whatever_the_window_holds() -> None:
    rates = [update(window, OrderedReduction(2), done=2)[1] for window in ([SHORT, LONG], [LONG, LONG])]
    assert [r.number for r in rates] == [3, 3]
    assert rates[0].learning_rate == rates[1].learning_rate
    noam = Noam(d_model=512, warmup_steps=10, factor=1.0)
    assert max(range(1, 40), key=lambda n: noam(n, 1.0)) == 10


def test_dropout_depends_on_seed_epoch_and_micro_batch_only() -> None:
    def mask(*position: int) -> torch.Tensor:
        seed_position(*position, torch.device("cpu"))
        return torch.rand(8)

    first = mask(1, 2, 3)
    torch.rand(5)
    assert torch.equal(first, mask(1, 2, 3))
    positions = [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (1, 23, 0), (12, 3, 0)]
    assert len({position_seed(*p) for p in positions}) == len(positions)
