"""After the training: every candidate is scored alike, the best becomes best.ckpt, and what is damaged is named."""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from crosslight.callbacks.best import Best
from crosslight.callbacks.ema import EMA
from crosslight.endgame import choose_weights
from crosslight.metrics.translation import Score
from crosslight.runs.averages import Averaging
from crosslight.runs.checkpoints import load_checkpoint, save_checkpoint
from crosslight.runs.folder import RunFolder, link_atomically
from crosslight.runs.record import Record

FACTS = {"tokenizer_sha256": "t", "config": {"model": {"size": 1}}}
WEIGHTS = {10: 10.0, 20: 4.0, 30: 0.0, 40: 1.0}
"""One weight after each update."""


class Finished:
    """A run after its training, whose validation score is a function of its one weight."""

    def __init__(
        self, path: Path, score: Callable[[float], float], kept: list[int], saved: list[int], mode: Any
    ) -> None:
        self.folder, self.model, self.score = RunFolder(path), nn.Linear(1, 1, bias=False), score
        self.best, self.validations = Best(monitor="val/loss", mode=mode, keep=5), 0
        for update in kept:
            save_checkpoint({**self.content(update), "value": score(WEIGHTS[update])}, self.folder.kept_at(update))
        order = sorted(kept, key=lambda u: score(WEIGHTS[u]), reverse=mode == "max")
        self.best.values = {update: score(WEIGHTS[update]) for update in order}
        link_atomically(self.folder.kept_at(order[0]), self.folder.best)
        for update in saved:
            save_checkpoint(self.content(update), self.folder.at_update(update))
        strategy = SimpleNamespace(barrier=lambda: None)
        self.trainer: Any = SimpleNamespace(callbacks=[self.best], strategy=strategy, callback_metrics={})
        self.trainer.is_global_zero, self.trainer.global_step = True, 40
        self.trainer.validate = self.validate
        self.task = SimpleNamespace(model=self.model, checkpoint_facts=FACTS, validation_result=None)

    def content(self, update: int) -> dict[str, Any]:
        weights = {"model.weight": torch.tensor([[WEIGHTS[update]]])}
        return {"state_dict": weights, "crosslight": FACTS, "update": update}

    def validate(self, task: Any, data: Any, verbose: bool) -> None:
        self.validations += 1
        value = self.score(self.model.weight.item())
        self.trainer.callback_metrics["val/loss"] = torch.tensor(value)
        self.task.validation_result = SimpleNamespace(scores={"loss": Score(value, "s")})

    def ends(self, last: int = 5, best: int = 5) -> tuple[str, dict[str, dict[str, Any]], float]:
        """Who won, the rows of the table by name, and the weight in best.ckpt."""
        record = Record(self.folder.record)
        averaging = Averaging(last=last, best=best)
        choose_weights(self.trainer, self.task, None, averaging=averaging, folder=self.folder, record=record)
        table = json.loads(self.folder.record.read_text())["averaging"]
        weight = load_checkpoint(self.folder.best)["state_dict"]["model.weight"].item()
        return table["winner"], {row["candidate"]: row for row in table["candidates"]}, weight


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., Finished]:
    def make(
        score: Callable[[float], float],
        kept: list[int] | None = None,
        saved: list[int] | None = None,
        mode: str = "min",
    ) -> Finished:
        return Finished(tmp_path, score, kept or [10, 20, 30], saved or [20, 30, 40], mode)

    return make


@pytest.mark.parametrize(
    ("middle", "winner", "weight"),
    [
        (0.0, "best single", 0.0),
        (5 / 3 + 0.1, "last 3", 5 / 3),
        (14 / 3 + 0.1, "best 3", 14 / 3),
        (7.5, "ema", 7.0),
    ],
)
@pytest.mark.parametrize("mode", ["min", "max"])
def test_the_best_on_the_validation_set_becomes_best_ckpt(
    finished: Callable[..., Finished], middle: float, winner: str, weight: float, mode: str
) -> None:
    sign = 1 if mode == "min" else -1
    run = finished(lambda w: sign * abs(w - middle), mode=mode)
    ema = EMA(decay=0.9, every_n_updates=1)
    ema.load_state_dict({"mean": {"weight": torch.tensor([[7.0]])}})
    run.trainer.callbacks.append(ema)
    name, rows, found = run.ends()
    assert (name, found) == (winner, pytest.approx(weight))
    assert list(rows) == ["best single", "last 3", "best 3", "ema"]
    assert [row["updates"] for row in rows.values()][1:] == [[20, 30, 40], [10, 20, 30], []]
    for row in rows.values():
        assert row["gain"] == pytest.approx(abs(rows["best single"]["score"]) - abs(row["score"]))
    assert max(rows, key=lambda one: rows[one]["gain"]) == winner
    best = load_checkpoint(run.folder.best)
    assert best["crosslight"] == FACTS
    if winner != "best single":
        assert (best["candidate"], best["value"]) == (winner, rows[winner]["score"])
        assert best["scores"] == {"loss": {"value": pytest.approx(best["value"]), "signature": "s"}}
        assert best["update"] == {"last 3": 40, "best 3": 30, "ema": 40}[winner]


def test_a_second_end_comes_to_the_same_and_leaves_the_trained_weights_as_they_were(
    finished: Callable[..., Finished],
) -> None:
    run = finished(lambda w: abs(w - 1.7))
    files = list(run.folder.checkpoints.rglob("update=*.ckpt"))
    before = [path.read_bytes() for path in files]
    first = run.ends()
    assert first[0] == "last 3"
    assert run.ends() == first
    assert [path.read_bytes() for path in files] == before


def test_a_tie_keeps_the_single_one(finished: Callable[..., Finished]) -> None:
    run = finished(lambda w: 1.0)
    assert run.ends()[0] == "best single"
    assert run.folder.best.samefile(run.folder.kept_at(10))


def test_scores_that_are_not_numbers_never_win(finished: Callable[..., Finished]) -> None:
    run = finished(lambda w: w if w in WEIGHTS.values() else math.nan)
    assert run.ends()[0] == "best single"


def test_with_fewer_than_two_checkpoints_there_is_no_average_and_no_validation(
    finished: Callable[..., Finished], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run = finished(lambda w: w, kept=[30], saved=[40])
    winner, rows, _ = run.ends()
    assert (winner, run.validations) == ("best single", 0)
    assert "last 1 is left out: there are 1 of the 5 checkpoints to average" in caplog.text
    assert rows["best 1"]["left_out"] == "there are 1 of the 5 checkpoints to average"


def test_what_is_switched_off_is_not_even_named(finished: Callable[..., Finished]) -> None:
    run = finished(lambda w: w)
    assert list(run.ends(last=0, best=0)[1]) == ["best single"]
    assert run.validations == 0


def test_the_same_updates_are_scored_once(finished: Callable[..., Finished]) -> None:
    run = finished(lambda w: w, kept=[20, 30], saved=[10, 20, 30])
    _, rows, _ = run.ends(last=2, best=2)
    assert rows["best 2"]["left_out"] == "the same as last 2"
    assert run.validations == 2


def test_only_updates_of_this_training_count_as_last(finished: Callable[..., Finished]) -> None:
    run = finished(lambda w: w)
    run.trainer.global_step = 30  # 40 is left from a run that was killed and resumed from before it
    assert run.ends()[1]["last 2"]["updates"] == [20, 30]


@pytest.mark.parametrize(("update", "damaged"), [(40, "last 3"), (10, "best 3"), (30, "best single")])
def test_a_damaged_candidate_is_named_and_left_out(
    finished: Callable[..., Finished], caplog: pytest.LogCaptureFixture, update: int, damaged: str
) -> None:
    caplog.set_level(logging.INFO)
    run = finished(lambda w: w, kept=[10, 20, 30], saved=[20, 40, 10])
    file = run.folder.at_update(update) if damaged == "last 3" else run.folder.kept_at(update)
    if damaged == "last 3":
        file.write_bytes(b"nonsense")
    else:
        file.unlink()
        file.write_bytes(b"nonsense")
    winner, rows, _ = run.ends()
    assert f"{damaged} is left out: {file}: " in caplog.text
    assert "score" not in rows[damaged]
    assert winner == ("last 3" if damaged == "best single" else "best single")
