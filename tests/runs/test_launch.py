"""Further processes of a run: what they are told, that they are ended, and that nothing of it stays behind."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from crosslight.runs import launch
from crosslight.runs.folder import RunFolder
from crosslight.runs.launch import RANK_VARIABLES, other_ranks, pinned_threads, rank, started_from_outside

OUTSIDE = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS", *RANK_VARIABLES)


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The processes started in a test, none of which may outlive it."""
    for name in OUTSIDE:
        monkeypatch.delenv(name, raising=False)
    processes: list[Any] = []

    class Noted(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)

    monkeypatch.setattr(launch.subprocess, "Popen", Noted)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a shell script take Python's place; it gets `-m crosslight.app FOLDER`."""

    def stand_in(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return stand_in


def test_each_process_is_told_its_rank_and_the_meeting_point(tmp_path: Path, python: Any) -> None:
    python('echo "$* $NODE_RANK $MASTER_ADDR $MASTER_PORT" > "$3/rank$LOCAL_RANK"; echo noise')
    with other_ranks(RunFolder(tmp_path), 3):
        port = os.environ["MASTER_PORT"]
        here = (os.environ["LOCAL_RANK"], os.environ["NODE_RANK"], os.environ["MASTER_ADDR"], rank())
    assert here == ("0", "0", "127.0.0.1", 0)
    assert sorted(path.name for path in tmp_path.glob("rank*")) == ["rank1", "rank2"]
    for path in tmp_path.glob("rank*"):
        assert path.read_text() == f"-m crosslight.app {tmp_path} 0 127.0.0.1 {port}\n"


@pytest.mark.parametrize("before", [None, "7"])
def test_the_number_of_threads_is_pinned_here_and_in_the_others_and_restored(
    before: str | None, tmp_path: Path, python: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    python('echo "$OMP_NUM_THREADS" > "$3/threads"')
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if before:
        monkeypatch.setenv("OMP_NUM_THREADS", before)
    threads = torch.get_num_threads()
    with pinned_threads(threads + 2), other_ranks(RunFolder(tmp_path), 2):
        assert torch.get_num_threads() == threads + 2
    assert (tmp_path / "threads").read_text() == f"{threads + 2}\n"
    assert torch.get_num_threads() == threads
    assert os.environ.get("OMP_NUM_THREADS") == before
    with pinned_threads(None):
        assert (torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")) == (threads, before)


@pytest.mark.parametrize("fails", [False, True])
def test_the_environment_is_afterwards_as_it_was(
    fails: bool, tmp_path: Path, python: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    python("exit 0")
    monkeypatch.setenv("MASTER_PORT", "1234")
    before = dict(os.environ)
    try:
        with other_ranks(RunFolder(tmp_path), 2):
            assert os.environ["MASTER_PORT"] != "1234"
            assert dict(os.environ) != before
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert fails
    assert dict(os.environ) == before


def test_one_process_starts_no_other(tmp_path: Path, started: list[Any]) -> None:
    before = dict(os.environ)
    with other_ranks(RunFolder(tmp_path), 1):
        assert dict(os.environ) == before
    assert not started


@pytest.mark.parametrize(("name", "value"), [("LOCAL_RANK", "1"), ("SLURM_NTASKS", "2")])
def test_a_process_that_was_started_as_one_of_several_starts_no_other(
    name: str, value: str, tmp_path: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not started_from_outside()
    monkeypatch.setenv(name, value)
    assert started_from_outside()
    with other_ranks(RunFolder(tmp_path), 4):
        pass
    assert not started


@pytest.mark.parametrize(
    ("environment", "number"),
    [
        ({}, 0),
        ({"LOCAL_RANK": "2"}, 2),
        ({"RANK": "5", "LOCAL_RANK": "1"}, 5),  # torchrun on the second machine
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, 3),
        ({"SLURM_PROCID": "0", "LOCAL_RANK": "1", "SLURM_NTASKS": "1"}, 1),  # our own launcher inside a SLURM job
    ],
)
def test_the_rank_is_read_from_whoever_started_the_process(
    environment: dict[str, str], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank() == number


def test_an_error_here_ends_the_others(tmp_path: Path, python: Any, started: list[Any]) -> None:
    python("exec sleep 60")
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError), other_ranks(RunFolder(tmp_path), 3):
        raise ZeroDivisionError
    assert [process.returncode for process in started] == [-15, -15]
    assert time.monotonic() - start < 30


def test_a_failure_elsewhere_is_a_failure_here(tmp_path: Path, python: Any) -> None:
    python("exit 3")
    with (
        pytest.raises(subprocess.CalledProcessError, match="exit status 3"),
        other_ranks(RunFolder(tmp_path), 2),
    ):
        pass


def test_a_failure_elsewhere_leaves_no_process_behind(tmp_path: Path, python: Any, started: list[Any]) -> None:
    python('test "$LOCAL_RANK" = 1 && exit 3; exec sleep 60')
    with pytest.raises(subprocess.CalledProcessError), other_ranks(RunFolder(tmp_path), 3):
        pass
    assert all(process.poll() is not None for process in started)
