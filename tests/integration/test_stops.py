"""A signal saves at the next boundary and ends the run with its own status; what is resumed has the same bits."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import At, added, assert_same_run, checkpoint, run

from crosslight.runs.record import read_record


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    run(folder)
    return folder


def send(number: signal.Signals) -> Callable[..., None]:
    return lambda *_: os.kill(os.getpid(), number)


MOMENTS: list[Any] = [
    pytest.param("on_train_batch_start", 6, 7, id="in an update"),
    pytest.param("on_train_batch_start", 5, 6, id="in the last update of an epoch"),
    pytest.param("on_train_batch_start", 7, 8, id="in an update before a validation"),
    pytest.param("on_train_batch_start", 11, 12, id="in an update before a validation at an epoch's end"),
    pytest.param("on_train_batch_start", 23, 24, id="in the last update of all"),
    pytest.param("on_validation_batch_end", 8, 8, id="in a validation"),
    pytest.param("on_validation_batch_end", 12, 12, id="in a validation at an epoch's end"),
    pytest.param("on_validation_batch_end", 24, 24, id="in the last validation"),
]


@pytest.mark.parametrize(("hook", "update", "saved"), MOMENTS)
def test_a_signal_saves_and_a_resumed_run_has_the_same_bits(
    unbroken: Path, hook: str, update: int, saved: int, tmp_path: Path
) -> None:
    folder = unbroken.parent / f"{hook}{update}"
    with added(At(hook, update, send(signal.SIGTERM))), pytest.raises(SystemExit) as end:
        run(folder)
    assert end.value.code == 143
    assert read_record(folder / "record.json")["status"] == "interrupted"
    assert checkpoint(folder, saved)["global_step"] == saved
    run(folder)
    assert_same_run(unbroken, folder)
    if saved == 24:  # and it can be made longer
        run(folder, "trainer.max_steps=31")
        assert_same_run(longer(unbroken), folder, 31)


def longer(finished: Path) -> Path:
    """The same run, gone on to 31 updates."""
    folder = finished.parent / "longer"
    if not folder.exists():
        shutil.copytree(finished, folder)
        run(folder, "trainer.max_steps=31")
    return folder


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.slow) for n in (signal.SIGINT, signal.SIGUSR1))],
)
def test_a_signal_to_all_processes_of_a_job_does_not_reach_the_loaders(
    unbroken: Path, number: signal.Signals, tmp_path: Path
) -> None:
    def send_to_all(*_: Any) -> None:
        for child in multiprocessing.active_children():
            subprocess.run(["kill", f"-{number}", str(child.pid)], check=True)  # by another process than ours
        os.kill(os.getpid(), number)
        time.sleep(0.3)

    folder = unbroken.parent / f"all{number}"
    with added(At("on_train_batch_start", 7, send_to_all)), pytest.raises(SystemExit) as end:
        run(folder, "batching.num_workers=2")
    assert end.value.code == 128 + number
    run(folder, "batching.num_workers=2")
    assert_same_run(unbroken, folder)


def saved(folder: Path) -> list[int]:
    return sorted(int(path.stem.partition("=")[2]) for path in (folder / "checkpoints").glob("update=*.ckpt"))


def test_saves_of_another_rhythm_stay_when_a_resume_changes_it(unbroken: Path) -> None:
    folder = unbroken.parent / "rhythm"
    run(folder, "trainer.max_steps=17")
    assert saved(folder) == [5, 10, 15, 17]
    run(folder, "trainer.max_steps=19", "callbacks.saver.every_n_updates=6")
    assert saved(folder) == [5, 10, 15, 18, 19]
