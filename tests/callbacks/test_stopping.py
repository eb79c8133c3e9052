"""When training ends: at a number of updates or of epochs, also where a resumed run has reached it already."""

from typing import Any
from unittest.mock import MagicMock

import pytest
from lightning.pytorch import Trainer

from crosslight.callbacks.stopping import StopAt
from crosslight.tasks.agreement import Agreement
from crosslight.tasks.base import Task


def stops(callback: StopAt, hook: str, updates: int, epoch: int, last: bool = False) -> bool:
    trainer: Any = MagicMock(spec=Trainer, global_step=updates, current_epoch=epoch, is_last_batch=last)
    trainer.should_stop = False
    task: Any = MagicMock(spec=Task, agreement=Agreement())
    arguments: list[Any] = [trainer, task] + [None, None, 0] * (hook == "on_train_batch_end")
    StopAt.__dict__[hook](callback, *arguments)
    return trainer.should_stop


@pytest.mark.parametrize(
    ("hook", "updates", "epoch", "last", "expected"),
    [
        ("on_train_batch_end", 9, 0, False, False),
        ("on_train_batch_end", 10, 0, False, True),
        ("on_train_batch_end", 5, 1, False, False),
        ("on_train_batch_end", 5, 0, True, False),
        ("on_train_batch_end", 5, 1, True, True),
        ("on_train_start", 9, 1, False, False),
        ("on_train_start", 10, 0, False, True),
        ("on_train_start", 5, 2, False, True),
    ],
)
def test_the_first_limit_reached_ends_training(hook: str, updates: int, epoch: int, last: bool, expected: bool) -> None:
    assert stops(StopAt(max_steps=10, max_epochs=2, max_time=None), hook, updates, epoch, last) is expected
