"""Which weights are kept, under what names, and that only a run's own are ever removed (case G06)."""

import hashlib
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from crosslight.callbacks.attention_maps import AttentionMaps
from crosslight.callbacks.best import Best
from crosslight.callbacks.progress import Progress
from crosslight.callbacks.samples import Samples
from crosslight.callbacks.saver import Saver
from crosslight.errors import ConfigError
from crosslight.runs.checkpoints import load_checkpoint
from crosslight.runs.folder import RunFolder, update_of
from crosslight.tasks.seq2seq import Seq2SeqTask

NAN = math.nan


def at(path: Path, update: int, value: float = 0.0, fn: str = "fit") -> Any:
    """A trainer whose weights are the number of the update."""
    strategy = SimpleNamespace(lightning_module_state_dict=lambda: {"model.w": torch.tensor([update])})
    metrics = {"val/bleu": torch.tensor(value)}
    return MagicMock(
        spec=Trainer,
        default_root_dir=path,
        global_step=update,
        callback_metrics=metrics,
        strategy=strategy,
        is_global_zero=True,
        state=SimpleNamespace(fn=fn),
    )


TASK: Any = MagicMock(spec=Seq2SeqTask, checkpoint_facts={"f": 1}, validation_result=SimpleNamespace(scores={}))


def validated(callback: Best, path: Path, scores: dict[int, float]) -> Best:
    for update, value in scores.items():
        callback.on_validation_end(at(path, update, value), TASK)
    return callback


def best(keep: int, mode: Any = "max") -> Best:
    return Best(monitor="val/bleu", mode=mode, keep=keep)


def kept(path: Path) -> list[int]:
    """The updates whose files are in `best/`; each holds what its name says."""
    files = RunFolder(path).kept.glob("*")
    updates = sorted(update_of(file) for file in files)
    for update in updates:
        content = load_checkpoint(RunFolder(path).kept_at(update))
        assert (content["update"], content["state_dict"]["model.w"].item()) == (update, update)
    return updates


def single(path: Path) -> int:
    return load_checkpoint(RunFolder(path).best)["update"]


@pytest.mark.parametrize(
    ("mode", "scores", "keep", "order"),
    [
        ("max", {1: 3.0, 2: 5.0, 3: 4.0, 4: 1.0}, 2, [2, 3]),
        ("min", {1: 3.0, 2: 5.0, 3: 4.0, 4: 1.0}, 3, [4, 1, 3]),
        ("max", {1: 3.0, 2: 5.0}, 5, [2, 1]),
        ("max", {1: 5.0, 2: 5.0, 3: 5.0}, 2, [1, 2]),
        ("max", {1: NAN, 2: 0.0, 3: NAN}, 3, [2]),
        ("min", {1: NAN, 2: NAN}, 3, [2]),
    ],
)
def test_the_best_are_kept_in_order_and_the_very_best_is_best_ckpt(
    tmp_path: Path, mode: str, scores: dict[int, float], keep: int, order: list[int]
) -> None:
    callback = validated(best(keep, mode), tmp_path, scores)
    assert list(callback.values) == order
    assert kept(tmp_path) == sorted(order)
    assert single(tmp_path) == order[0]
    assert RunFolder(tmp_path).best.samefile(RunFolder(tmp_path).kept_at(order[0]))
    assert {file.name for file in RunFolder(tmp_path).checkpoints.iterdir()} == {"best", "best.ckpt"}


def test_the_first_number_beats_nan_and_nothing_else_does() -> None:
    high, low = best(1), best(1, "min")
    assert high.is_better(0.0, than=NAN)
    assert not any(high.is_better(NAN, than=value) for value in (NAN, 0.0))
    assert high.is_better(2.0, than=1.0)
    assert low.is_better(1.0, than=2.0)
    assert not any(one.is_better(1.0, than=1.0) for one in (high, low))


def test_without_hard_links_best_ckpt_is_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Any, target: Any) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    validated(best(2), tmp_path, {1: 1.0, 2: 2.0})
    assert RunFolder(tmp_path).best.read_bytes() == RunFolder(tmp_path).kept_at(2).read_bytes()
    assert not RunFolder(tmp_path).best.samefile(RunFolder(tmp_path).kept_at(2))
    assert {file.name for file in RunFolder(tmp_path).checkpoints.iterdir()} == {"best", "best.ckpt"}


@pytest.mark.parametrize("saved_at", [2, 4, 6])
def test_a_killed_run_comes_to_the_same_files_after_its_resume(tmp_path: Path, saved_at: int) -> None:
    """It had validated on after its last save, and removed files that the save still counts on."""
    scores = {1: 1.0, 2: 6.0, 3: 2.0, 4: 3.0, 5: 7.0, 6: 5.0, 7: 0.5, 8: 4.0}
    before = validated(best(3), tmp_path, {n: v for n, v in scores.items() if n <= saved_at})
    state = before.state_dict()
    validated(before, tmp_path, {n: v for n, v in scores.items() if saved_at < n <= 7})
    after = best(3)
    after.load_state_dict(state)
    after.on_train_start(at(tmp_path, saved_at), TASK)
    assert single(tmp_path) == next(iter(after.values))
    validated(after, tmp_path, {n: v for n, v in scores.items() if n > saved_at})
    assert list(after.values) == [5, 2, 6]
    assert kept(tmp_path) == [2, 5, 6]
    assert single(tmp_path) == 5


def test_files_of_updates_that_the_resumed_run_does_not_know_are_left_alone(tmp_path: Path) -> None:
    before = validated(best(2), tmp_path, {1: 1.0})
    state = before.state_dict()
    validated(before, tmp_path, {2: 9.0, 3: 8.0})
    after = best(2)
    after.load_state_dict(state)
    after.on_train_start(at(tmp_path, 1), TASK)
    validated(after, tmp_path, {4: 2.0, 5: 3.0, 6: 4.0})  # another learning rate: other updates, other scores
    assert list(after.values) == [6, 5]
    assert {2, 3} <= set(kept(tmp_path))
    assert single(tmp_path) == 6


def test_a_resume_that_keeps_fewer_removes_the_others_of_its_own(tmp_path: Path) -> None:
    before = validated(best(4), tmp_path, {1: 1.0, 2: 4.0, 3: 3.0, 4: 2.0})
    state = before.state_dict()
    validated(before, tmp_path, {5: 9.0})  # after the last save: the file of update 1 makes place for it
    after = best(2)
    after.load_state_dict(state)
    after.on_train_start(at(tmp_path, 4), TASK)
    assert kept(tmp_path) == [2, 3, 5]
    validated(after, tmp_path, {5: 3.5})
    assert kept(tmp_path) == [2, 5]
    assert single(tmp_path) == 2


def hashes(path: Path) -> dict[str, str]:
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in path.rglob("*") if f.is_file()}


def test_a_run_that_starts_from_another_ones_state_touches_only_its_own_files(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    first = validated(best(3), one, {1: 1.0, 2: 2.0, 3: 3.0})
    before = hashes(one)
    second = best(1)
    second.load_state_dict(first.state_dict())
    second.on_train_start(at(other, 3), TASK)
    validated(second, other, {4: 4.0, 5: 5.0, 6: 6.0})
    assert hashes(one) == before
    assert kept(other) == [6]


def test_an_evaluation_outside_the_training_leaves_no_trace(tmp_path: Path) -> None:
    """`trainer.validate` calls the same hooks, and `should_stop` is left from the training."""
    trainer, module = at(tmp_path, 7, 99.0, fn="validate"), MagicMock(spec=LightningModule)
    trainer.should_stop, trainer.is_last_batch = True, False
    callbacks: list[Any] = [best(1), Progress(every_n_updates=1, seconds=0.0), Samples(count=1), AttentionMaps(count=1)]
    for callback in [*callbacks, Saver(every_n_updates=1, keep_last=1)]:
        callback.on_validation_end(trainer, module)
    assert list(tmp_path.iterdir()) == []
    assert trainer.mock_calls == module.mock_calls == []


def test_at_least_one_is_kept() -> None:
    with pytest.raises(ConfigError, match=r"^callbacks\.best\.keep: 0 is less than 1$"):
        best(0)
