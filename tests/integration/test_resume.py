"""A run that was killed and resumed ends with the same bits as one that never stopped."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from commands import ROOT, SMALL, environment

Train = Callable[..., Path]
LONG = [*SMALL, "trainer.max_steps=24", "trainer.val_check_interval=10", "model.dropout=0.1"]


def weights(run: Path, update: int) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / f"update={update}.ckpt", weights_only=True)["state_dict"]


def assert_same_run(one: Path, other: Path) -> None:
    first, second = weights(one, 24), weights(other, 24)
    assert all(torch.equal(first[key], second[key]) for key in first)
    scores = [json.loads((run / "record.json").read_text())["scores"] for run in (one, other)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize("stop", [9, 10, 12])
def test_resuming_in_an_epoch_after_a_validation_and_at_an_epochs_end_changes_no_bit(
    train: Train, copy_run: Path, stop: int
) -> None:
    total = ["scheduler.total_steps=24", "callbacks.saver.keep_last=9"]
    stopped = train(*LONG, f"trainer.max_steps={stop}", *total)
    epoch = torch.load(stopped / "checkpoints" / f"update={stop}.ckpt", weights_only=True)["TranslationData"]
    assert epoch["updates"] == (6 if stop == 12 else stop - 6)  # update 12 ends the second epoch of six
    resumed = train(f"resume={stopped}", "trainer.max_steps=24")
    assert resumed == stopped
    assert f"update={stop}.ckpt" in (resumed / "train.log").read_text()
    assert_same_run(copy_run, resumed)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_resumes_from_its_last_save(train: Train, copy_run: Path, folder: Path, workers: int) -> None:
    options = [*LONG, f"data.num_workers={workers}", "callbacks.saver.every_n_updates=4", f"name=killed{workers}"]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *options],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list((folder / "outputs").glob(f"killed{workers}/*/checkpoints/update=*.ckpt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = next((folder / "outputs" / f"killed{workers}").iterdir())
    assert json.loads((run / "record.json").read_text())["status"] != "finished"
    resumed = train(f"resume={run}")
    assert "resuming from" in (run / "train.log").read_text()
    assert_same_run(copy_run, resumed)
