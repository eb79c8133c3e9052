"""Moments and learning rate go on where they were; a new rate is taken, and said (case G12)."""

import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from small_runs import added, assert_same_run, run


class Step(NamedTuple):
    """One update; `length` is the norm of what it changed in the weights."""

    learning_rate: float
    gradient_norm: float
    length: float


class Steps(Callback):
    """Notes every update by its number."""

    def __init__(self) -> None:
        self.taken: dict[int, Step] = {}

    def on_train_batch_start(self, trainer: Any, module: Any, *_: Any) -> None:
        self.before = torch.nn.utils.parameters_to_vector(module.parameters()).detach().clone()

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        length = (torch.nn.utils.parameters_to_vector(module.parameters()).detach() - self.before).norm()
        done = module.last_update
        self.taken[done.number] = Step(done.learning_rate, float(done.gradient_norm), float(length))


def steps(folder: Path, *overrides: str) -> dict[int, Step]:
    """What a start of a run does."""
    noted = Steps()
    with added(noted):
        run(folder, "scheduler=constant", "scheduler.warmup_steps=4", "trainer.val_check_interval=20", *overrides)
    return noted.taken


def test_an_update_after_a_resume_is_the_one_that_would_have_come(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unbroken = steps(tmp_path / "unbroken")
    before = steps(tmp_path / "stopped", "trainer.max_steps=20")
    shutil.copytree(tmp_path / "stopped", tmp_path / "other rate")
    after = steps(tmp_path / "stopped")
    assert [*before, *after] == [*unbroken] == [*range(1, 25)]
    assert before | after == unbroken
    assert_same_run(tmp_path / "unbroken", tmp_path / "stopped")

    caplog.set_level(logging.INFO)
    slower = steps(tmp_path / "other rate", "optimizer.lr=5e-4")  # it was 2e-3
    assert "resume: optimizer.lr was 0.002 and is now 0.0005" in [record.getMessage() for record in caplog.records]
    assert slower[21].learning_rate == unbroken[21].learning_rate / 4 == 5e-4
    assert slower[21].gradient_norm == unbroken[21].gradient_norm
    assert slower[21].length == pytest.approx(unbroken[21].length / 4, rel=1e-3)  # Adam's moments are the same
