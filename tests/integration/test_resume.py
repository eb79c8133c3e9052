"""A run that was killed and resumed ends with the same bits as one that never stopped."""

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import LONG, ROOT, Command, environment
from forked import Forked, ForkServer

Train = Callable[..., Path]


def record_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "record.json").read_text())


def candidates(run: Path) -> dict[str, Any]:
    """The scores of what competed for best.ckpt after the training."""
    return {row["candidate"]: row["score"] for row in record_of(run)["averaging"]["candidates"]}


def assert_same_updates(one: Path, other: Path) -> None:
    """The weights after the last update and their running mean are equal to the last bit."""
    first, second = (torch.load(run / "checkpoints" / "update=24.ckpt", weights_only=True) for run in (one, other))
    for kind in ("state_dict", "EMA"):
        expected, found = (c[kind] if kind in c else c["callbacks"][kind]["mean"] for c in (first, second))
        assert len(expected) > 10
        assert all(torch.equal(expected[key], found[key]) for key in expected)
    for candidate in ("best single", "ema"):
        assert candidates(one)[candidate] == candidates(other)[candidate]


def assert_same_run(one: Path, other: Path) -> None:
    """So are all averages, their scores, and those of the test."""
    assert_same_updates(one, other)
    for key in ("scores", "averaging"):
        assert record_of(one)[key] == record_of(other)[key]


@pytest.mark.parametrize("stop", [9, 10, 12])
def test_resuming_in_an_epoch_after_a_validation_and_at_an_epochs_end_changes_no_bit(
    train: Train, copy_run: Path, stop: int
) -> None:
    total = ["scheduler.total_steps=24", "callbacks.saver.keep_last=9", "averaging=none"]
    stopped = train(*LONG, f"trainer.max_steps={stop}", *total)
    epoch = torch.load(stopped / "checkpoints" / f"update={stop}.ckpt", weights_only=True)["TranslationData"]
    assert epoch["updates"] == (6 if stop == 12 else stop - 6)  # update 12 ends the second epoch of six
    resumed = train(f"resume={stopped}", "trainer.max_steps=24", real=stop == 9)  # with another hash seed
    assert resumed == stopped
    assert f"update={stop}.ckpt" in (resumed / "train.log").read_text()
    assert_same_updates(copy_run, resumed)


def started(server: ForkServer, folder: Path, name: str, *options: str) -> tuple[Forked, Path]:
    """A run in the background that has saved its first checkpoint, and its folder."""
    line = [str(ROOT / "train.py"), *options, f"name={name}"]
    with open(os.devnull, "r+b") as nothing:
        ends = dict.fromkeys(("stdin", "stdout", "stderr"), nothing.fileno())
        process = server.start(line, cwd=folder, environment=environment(), **ends)
    deadline = time.monotonic() + 120
    while not list((folder / "outputs").glob(f"{name}/*/checkpoints/update=*.ckpt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return process, next((folder / "outputs" / name).iterdir())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_resumes_from_its_last_save(
    train: Train, copy_run: Path, fork_server: ForkServer, folder: Path, workers: int
) -> None:
    process, run = started(fork_server, folder, f"killed{workers}", *LONG, f"batching.num_workers={workers}")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert record_of(run)["status"] != "finished"
    resumed = train(f"resume={run}")
    assert "resuming from" in (run / "train.log").read_text()
    assert_same_run(copy_run, resumed)


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_run_with_its_own_status(
    fork_server: ForkServer, folder: Path, sent: signal.Signals, status: int
) -> None:
    process, run = started(fork_server, folder, f"stopped{status}", *LONG, "trainer.max_steps=100000")
    process.send_signal(sent)
    try:
        assert process.wait(timeout=60) == status
    finally:
        process.kill()
    assert record_of(run)["status"] == "interrupted"


def test_a_resumed_run_keeps_its_batches_and_groups(command: Command, copy_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(copy_run, run)
    files = {path.name: path.read_bytes() for path in copy_run.rglob("update=*.ckpt")}
    done = command("train.py", f"resume={run}", "batching.max_tokens=1000", status=2)
    assert "batching.max_tokens was 1600 and is now 1000" in done.stderr
    done = command("train.py", f"resume={run}", "cleaning.max_len=9", "cleaning.over_long=truncate", status=2)
    assert "the pieces of the sentences was" in done.stderr
    done = command("train.py", f"resume={run}", "model=base", status=2)
    assert "a resumed run keeps its model" in done.stderr
    done = command("train.py", f"resume={run}", f"hydra.run.dir={tmp_path / 'own'}", status=2)
    assert f"hydra.run.dir: resume={run} goes on in that folder" in done.stderr
    done = command("train.py", f"resume={run}", "expect=null")  # it was finished: nothing more is trained
    assert record_of(run)["updates"] == 24
    names = ["best", "best.ckpt", *(f"update={n}.ckpt" for n in (12, 16, 20, 24, 8))]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == names
    assert_same_run(copy_run, run)
    assert {path.name: path.read_bytes() for path in copy_run.rglob("update=*.ckpt")} == files, (
        "the original is as it was"
    )


def test_a_resume_that_fails_before_training_leaves_the_run_as_it_was(
    command: Command, copy_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(copy_run, run)
    before = {name: (run / name).read_bytes() for name in ("config.yaml", "record.json")}
    done = command("train.py", f"resume={run}", "cache=/dev/null", status=2)
    assert "cannot be kept in /dev/null" in done.stderr
    assert {name: (run / name).read_bytes() for name in before} == before
    command("train.py", f"resume={run}", "expect=null")
