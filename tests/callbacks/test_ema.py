"""The running mean of the weights: by its formula, each weight once, the same bits after a resume."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from lightning.pytorch import Trainer
from torch import nn

from crosslight.callbacks.ema import EMA
from crosslight.errors import ConfigError
from crosslight.runs.checkpoints import load_checkpoint, save_checkpoint
from crosslight.tasks.base import Task


def model_of(seed: int = 0) -> nn.Sequential:
    """An embedding that is tied to the output, with a whole number beside them."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7))
    model[1].weight = model[0].weight
    model.register_buffer("count", torch.tensor([seed]))
    return model


def walk(callback: EMA, model: nn.Sequential, updates: range, skipped: tuple[int, ...] = ()) -> list[torch.Tensor]:
    """Train by adding noise that depends on the update alone; the weights of the output after each."""
    task: Any = MagicMock(spec=Task, model=model)
    trainer: Any = MagicMock(spec=Trainer)
    callback.on_train_start(trainer, task)
    course = []
    for number in updates:
        generator = torch.Generator().manual_seed(number)
        task.last_update = None if number in skipped else SimpleNamespace(number=number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += torch.randn(parameter.shape, generator=generator)
        callback.on_train_batch_end(trainer, task, None, None, 0)
        course.append(model[1].weight.detach().clone())
    return course


@pytest.mark.parametrize(("decay", "every"), [(0.9, 1), (0.3, 1), (0.999, 3)])
def test_the_mean_follows_its_formula_and_the_training_does_not_see_it(decay: float, every: int) -> None:
    callback, model = EMA(decay=decay, every_n_updates=every), model_of()
    expected = model[1].weight.detach().double().clone()
    course = walk(callback, model, range(1, 30))
    for step, weights in enumerate(course[every - 1 :: every], 1):
        d = min(decay, (1 + step) / (10 + step))
        expected = d * expected + (1 - d) * weights.double()
    torch.testing.assert_close(callback.weights(model)["1.weight"].double(), expected, rtol=0, atol=1e-5)
    assert torch.equal(model[1].weight, walk(EMA(decay=0.0, every_n_updates=1), model_of(), range(1, 30))[-1])


def test_tied_weights_are_averaged_once_and_stay_tied() -> None:
    callback, model = EMA(decay=0.9, every_n_updates=1), model_of(seed=5)
    walk(callback, model, range(1, 4))
    assert callback.state_dict()["mean"].keys() == {"0.weight", "1.bias"}
    mean = callback.weights(model)
    assert list(mean) == list(model.state_dict())
    assert mean["0.weight"] is mean["1.weight"]
    assert mean["count"].tolist() == [5]
    other = model_of()
    other.load_state_dict(mean)
    assert other[0].weight is other[1].weight


@pytest.mark.parametrize("stop", [1, 5, 6])
def test_a_resume_changes_no_bit(stop: int, tmp_path: Path) -> None:
    whole, model = EMA(decay=0.9, every_n_updates=2), model_of()
    walk(whole, model, range(1, 13))
    before, same = EMA(decay=0.9, every_n_updates=2), model_of()
    walk(before, same, range(1, stop + 1))
    save_checkpoint(before.state_dict(), tmp_path / "a.ckpt")
    after = EMA(decay=0.9, every_n_updates=2)
    after.load_state_dict(load_checkpoint(tmp_path / "a.ckpt"))
    walk(after, same, range(stop + 1, 13))
    expected, found = whole.weights(model), after.weights(same)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_an_update_that_was_skipped_is_no_step() -> None:
    callback, model = EMA(decay=0.9, every_n_updates=1), model_of()
    walk(callback, model, range(1, 4))
    before = callback.weights(model)["1.bias"].clone()
    walk(callback, model, range(4, 5), skipped=(4,))
    assert torch.equal(callback.weights(model)["1.bias"], before)


@pytest.mark.parametrize(("decay", "every", "name"), [(1.0, 1, "decay"), (-0.1, 1, "decay"), (0.9, 0, "every_n_up")])
def test_a_mean_that_never_moves_is_refused(decay: float, every: int, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^callbacks\.ema\.{name}"):
        EMA(decay=decay, every_n_updates=every)
