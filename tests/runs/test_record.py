"""`record.json`: its layout, and that it is whole on the disk after every change."""

import importlib.metadata
import json
import os
import re
import sys
from pathlib import Path

import pytest

from crosslight.metrics.translation import Score, score_translations
from crosslight.runs.record import PACKAGES, Record, environment, git_commit, hyper_parameters, now, read_record


def test_scores_lie_by_split_test_set_and_metric_with_their_signatures(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.json")
    record.add_scores("test", "news", {"loss": Score(2.5, "nll"), "bleu": Score(30.0, "nrefs:1")})
    record.add_scores("test", "captions", {"bleu": Score(40.0, "nrefs:1")})
    record.add_scores("validation", "validation", {"bleu": Score(20.0, "nrefs:1")})
    record.add_scores("test", "captions", {"chrf": Score(50.0, "x")})  # a second look takes the place of the first
    assert json.loads((tmp_path / "record.json").read_text())["scores"] == {
        "test": {
            "news": {"bleu": {"value": 30.0, "signature": "nrefs:1"}, "loss": {"value": 2.5, "signature": "nll"}},
            "captions": {"chrf": {"value": 50.0, "signature": "x"}},
        },
        "validation": {"validation": {"bleu": {"value": 20.0, "signature": "nrefs:1"}}},
    }


def test_real_scores_can_be_written_and_read(tmp_path: Path) -> None:
    scores = score_translations(["ein Hund", ""], ["ein Hund", "eine Katze"], "de")
    Record(tmp_path / "r").add_scores("test", "t", scores)
    found = read_record(tmp_path / "r")["scores"]["test"]["t"]
    assert found.keys() == {"bleu", "chrf", "exact_match"}
    assert {name: Score(**score) for name, score in found.items()} == scores


def test_every_change_is_on_the_disk_at_once_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "run" / "record.json"
    record = Record(path)
    assert record.content == {}
    assert not path.exists(), "looking writes nothing"
    record.update(status="running", name="Übung")
    assert read_record(path) == {"status": "running", "name": "Übung"}
    Record(path).update(status="finished")
    assert read_record(path) == {"status": "finished", "name": "Übung"}
    assert list(path.parent.iterdir()) == [path]


def test_a_change_that_cannot_be_written_leaves_the_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    record = Record(path)
    record.update(updates=1)
    old = path.read_bytes()
    with pytest.raises(TypeError):
        record.update(model=object())
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        Record(path).update(updates=2)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


def test_other_ranks_read_but_do_not_write(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    Record(path).update(a=1)
    other = Record(path, writes=False)
    other.update(b=2)
    assert other.content == {"a": 1, "b": 2}
    assert read_record(path) == {"a": 1}


def test_text_that_is_not_unicode_does_not_lose_the_record(tmp_path: Path) -> None:
    Record(tmp_path / "r").update(command=["train.py", "name=\udcff"])
    assert read_record(tmp_path / "r")["command"][0] == "train.py"


def test_the_surroundings_say_what_the_user_typed_and_what_was_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/long/way/train.py", "model=tiny", "++seed=3"])
    found = environment()
    assert found["command"] == ["train.py", "model=tiny", "seed=3"]
    assert found["versions"] == {
        "python": ".".join(map(str, sys.version_info[:3])),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }
    assert {"torch", "lightning", "sacrebleu", "sentencepiece"} <= set(PACKAGES)
    json.dumps(found)


def test_the_commit_is_named_and_its_absence_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git_commit()
    assert commit is None or re.fullmatch(r"[0-9a-f]{40}(\+changes)?", commit)
    monkeypatch.setenv("PATH", "/nowhere")
    assert git_commit() is None


def test_the_time_is_in_utc() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", now())


def test_hyper_parameters_are_flat_and_name_classes_barely() -> None:
    chosen = ("optimizer", "scheduler", "trainer", "data", "tokenizer", "task", "decode")
    groups = {key: {"_target_": "a.B"} for key in chosen}
    positions = {"_target_": "crosslight.nn.positions.RotaryPositions", "_partial_": True, "base": 10.0}
    config = {**groups, "model": {"d_model": 8, "window": None, "positions": positions}, "seed": 3, "name": "x"}
    assert hyper_parameters(config) == {
        "model.d_model": 8,
        "model.window": "None",
        "model.positions": "RotaryPositions",
        "model.positions.base": 10.0,
        **dict.fromkeys(groups, "B"),
        "seed": 3,
        "name": "x",
    }
