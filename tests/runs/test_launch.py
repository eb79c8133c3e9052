"""Further processes of a run: what they are told, that they are ended, and that nothing of it stays behind."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from crosslight.errors import RunError
from crosslight.runs import launch, ranks
from crosslight.runs import meeting as meetings
from crosslight.runs.folder import RunFolder
from crosslight.runs.launch import other_ranks, pinned_threads
from crosslight.runs.meeting import Meeting


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The processes started in a test, none of which may outlive it."""
    for name in (*ranks.TORCHRUN, *ranks.SRUN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(meetings, "ECHO_SECONDS", 0.5)
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
    """Has a shell script take Python's place; it gets `-m crosslight.app PARENT`."""

    def stand_in(script: str) -> None:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))

    return stand_in


def error_of(folder: Path, processes: int, work: Callable[[Meeting], None]) -> BaseException | None:
    """What comes out when rank 0 does this work."""
    try:
        with other_ranks(RunFolder(folder), processes) as meeting:
            assert meeting is not None
            work(meeting)
    except Exception as error:
        return error
    return None


def test_each_process_is_told_its_rank_and_the_meeting_point(tmp_path: Path, python: Any) -> None:
    python(f'echo "$* $WORLD_SIZE $LOCAL_WORLD_SIZE $RANK $MASTER_ADDR $MASTER_PORT" > {tmp_path}/told$LOCAL_RANK')
    with other_ranks(RunFolder(tmp_path), 3) as meeting:
        assert meeting is not None
        assert meeting.ask("folder") == str(tmp_path)
        port = os.environ["MASTER_PORT"]
        here = ranks.launch()
    assert here == ranks.Launch(by="torchrun", processes=3, local_processes=3)
    assert sorted(path.name for path in tmp_path.glob("told*")) == ["told1", "told2"]
    for rank in (1, 2):
        told = f"-m crosslight.app {os.getpid()} 3 3 {rank} 127.0.0.1 {port}\n"
        assert (tmp_path / f"told{rank}").read_text() == told


def test_what_a_process_prints_is_kept_if_it_is_anything(tmp_path: Path, python: Any, capfd: Any) -> None:
    python('test "$RANK" = 1 || echo noise >&2')
    with other_ranks(RunFolder(tmp_path), 3):
        pass
    assert {path.name: path.read_text() for path in tmp_path.glob("rank*")} == {"rank2.log": "noise\n"}
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("before", [None, "7"])
def test_the_number_of_threads_is_pinned_here_and_in_the_others_and_restored(
    before: str | None, tmp_path: Path, python: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    python(f'echo "$OMP_NUM_THREADS" > {tmp_path}/threads')
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
    with other_ranks(RunFolder(tmp_path), 1) as meeting:
        assert meeting is None
        assert dict(os.environ) == before
    assert not started


def test_an_error_here_ends_the_others(tmp_path: Path, python: Any, started: list[Any]) -> None:
    python("exec sleep 60")
    start = time.monotonic()
    with pytest.raises(ZeroDivisionError), other_ranks(RunFolder(tmp_path), 3):
        raise ZeroDivisionError
    assert [process.returncode for process in started] == [-15, -15]
    assert time.monotonic() - start < 30


def test_a_failure_at_the_start_ends_the_wait_for_it_with_its_last_words(tmp_path: Path, python: Any) -> None:
    """Rank 0 waits for facts that never come."""
    python("for n in 1 2 3 4 5 6 7; do echo line $n >&2; done; exit 3")
    (tmp_path / "rank1.log").write_text("from an earlier start\n")
    start = time.monotonic()
    raised = error_of(tmp_path, 2, lambda meeting: meeting.agree({}))
    first, *lines = str(raised).splitlines()
    assert first == f"rank 1 ended with status 3; the last that {tmp_path / 'rank1.log'} has of it:"
    assert lines == [f"  line {number}" for number in range(3, 8)]
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo noise; echo 'error: cache: no room'; exit 2", "rank 1: cache: no room"),
        ("kill -9 $$", "rank 1 was killed by SIGKILL; the last that {log} has of it: nothing"),
    ],
)
def test_a_failure_elsewhere_is_a_failure_here_also_when_it_shows_as_a_lost_connection(
    script: str, said: str, tmp_path: Path, python: Any, started: list[Any]
) -> None:
    python(f'test "$RANK" = 2 && exec sleep 60; {script}')

    def lose_connection(meeting: Meeting) -> None:
        raise RuntimeError("connection closed by peer")

    def go_on(meeting: Meeting) -> None:
        started[-2].wait()
        started[-1].terminate()

    for work in (go_on, lose_connection):
        raised = error_of(tmp_path, 3, work)
        assert isinstance(raised, RunError)
        assert str(raised) == said.format(log=tmp_path / "rank1.log")
        assert all(process.poll() is not None for process in started)


def test_rank_0_is_ended_if_it_does_not_notice_a_failure(
    tmp_path: Path, python: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As NCCL may wait for a process that is gone."""
    python("exit 3")
    monkeypatch.setattr(launch, "GRACE_SECONDS", 0.1)
    ended, statuses = threading.Event(), []
    monkeypatch.setattr(launch.os, "_exit", lambda status: (statuses.append(status), ended.set()))
    with pytest.raises(RunError), other_ranks(RunFolder(tmp_path), 2):
        assert ended.wait(20)
    assert statuses == [2]
    assert json.loads((tmp_path / "record.json").read_text())["status"] == "failed"
    assert capsys.readouterr().err.startswith("error: rank 1 ended with status 3")


def test_a_process_that_was_asked_to_end_is_no_failure_yet_an_end(tmp_path: Path, python: Any) -> None:
    python("exit 143")
    with pytest.raises(SystemExit, match="143"), other_ranks(RunFolder(tmp_path), 2):
        raise SystemExit(143)


def test_processes_end_when_rank_0_is_killed() -> None:
    child = "import os, sys, time; from crosslight.runs.launch import end_with; end_with(int(sys.argv[1])); print(1)"
    parent = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1], str(os.getpid())])"
    with subprocess.Popen(
        [sys.executable, "-c", parent, f"{child}; sys.stdout.flush(); time.sleep(60)"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        process.kill()
        start = time.monotonic()
        assert process.stdout.read() == b"", "the child held the other end"
    assert time.monotonic() - start < 5
