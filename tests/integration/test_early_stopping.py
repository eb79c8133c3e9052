"""A run that ends before its last update says why, and a resume of it comes to the same end."""

import logging
import shutil
from pathlib import Path

import pytest
from small_runs import assert_same_run, run

from crosslight.runs.record import Record

NEVER_BETTER = [
    "callbacks=[saver,best,progress,early_stopping]",
    *("callbacks.best.monitor=val/exact_match", "callbacks.best.mode=max", "callbacks.early_stopping.patience=1"),
    "averaging=none",
]
"""The score is 0 in every validation of a run that is as short, so the second one ends it: update 8."""


def updates(record: Record) -> int:
    return int(record.content["updates"])


def test_a_run_whose_patience_is_over_says_so_and_stays_where_it_is_until_it_gets_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    said = "training ends after update 8: val/exact_match has not improved for 1 validations (callbacks.early_stopping)"
    assert updates(run(tmp_path / "run", *NEVER_BETTER)) == 8
    assert caplog.messages.count(said) == 1
    shutil.copytree(tmp_path / "run", tmp_path / "resumed")
    assert updates(run(tmp_path / "resumed", *NEVER_BETTER)) == 8
    assert caplog.messages.count(said) == 2
    assert_same_run(tmp_path / "run", tmp_path / "resumed", update=8)
    assert updates(run(tmp_path / "resumed", *NEVER_BETTER, "callbacks.early_stopping.patience=3")) == 16


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("trainer.max_epochs=1", "training ends after update 6: trainer.max_epochs=1"),
        ("trainer.max_time=00:00:00:00", "training ends after update 1: trainer.max_time=00:00:00:00"),
        ("trainer.max_steps=2", None),
    ],
)
def test_a_limit_that_comes_before_the_last_update_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, limit: str, said: str | None
) -> None:
    caplog.set_level(logging.INFO)
    run(tmp_path / "run", "averaging=none", "callbacks=[saver,best,progress]", "scheduler.total_steps=24", limit)
    assert [message for message in caplog.messages if message.startswith("training ends")] == ([said] if said else [])
