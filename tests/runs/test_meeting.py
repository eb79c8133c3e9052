"""Notes among the processes of one launch: threads in place of processes, over one store."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist

from crosslight.errors import ConfigError, RunError
from crosslight.runs import meeting as module
from crosslight.runs.meeting import Meeting, on_this_machine
from crosslight.runs.ranks import Launch


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_SECONDS", 0.0)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "ECHO_SECONDS", 0.5)


def outcomes(processes: int, work: Callable[[Meeting], Any]) -> list[Any]:
    """What `work` returns or raises for each rank; all run at once."""
    store, results = dist.HashStore(), [None] * processes

    def process(rank: int) -> None:
        try:
            with Meeting(store, Launch(by="torchrun", rank=rank, processes=processes)) as meeting:
                results[rank] = work(meeting)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=process, args=(rank,), daemon=True) for rank in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    return results


def test_all_go_on_when_they_agree() -> None:
    def work(meeting: Meeting) -> str:
        meeting.roll_call()
        if meeting.place.rank == 0:
            meeting.tell("folder", "runs/1")
        meeting.agree({"the training data (sha256)": "ab"})
        return meeting.ask("folder")

    assert outcomes(4, work) == ["runs/1"] * 4


def test_a_process_with_other_data_is_named_and_all_end() -> None:
    def work(meeting: Meeting) -> None:
        meeting.agree({"the tokenizer (sha256)": "t", "the training data (sha256)": f"{meeting.place.rank == 2}"})

    first, *others = outcomes(4, work)
    assert isinstance(first, RunError)
    assert str(first).startswith("rank 2 on ")
    assert "the training data (sha256) is True, but False on rank 0" in str(first)
    assert [(type(error), error.code) for error in others] == [(SystemExit, 2)] * 3


def test_the_others_end_with_the_status_of_rank_0() -> None:
    def work(meeting: Meeting) -> None:
        if meeting.place.rank:
            meeting.ask("folder")
        raise SystemExit(1)

    assert [error.code for error in outcomes(3, work)] == [1, 1, 1]


def test_a_run_that_does_not_begin_lets_the_others_go() -> None:
    """As after `--help`."""
    found = outcomes(3, lambda meeting: meeting.ask("folder") if meeting.place.rank else None)
    assert found[0] is None
    assert [error.code for error in found[1:]] == [0, 0]


@pytest.mark.parametrize("error", [ConfigError("cache: no room"), ZeroDivisionError("by zero")])
def test_a_failure_elsewhere_explains_an_error_here(error: Exception) -> None:
    def work(meeting: Meeting) -> None:
        if meeting.place.rank == 1:
            raise error
        with meeting.explaining():
            raise RuntimeError("connection closed by peer")

    first, _, last = outcomes(3, work)
    assert isinstance(first, RunError)
    assert str(first).startswith("rank 1 on ")
    assert str(first).endswith(str(error))
    assert last.code == 2


def test_an_error_that_nothing_explains_stays_what_it_is() -> None:
    def work(meeting: Meeting) -> None:
        with meeting.explaining():
            raise ZeroDivisionError

    assert isinstance(outcomes(1, work)[0], ZeroDivisionError)


def test_who_does_not_come_is_named() -> None:
    meeting = Meeting(dist.HashStore(), Launch(by="srun", processes=3, local_processes=3))
    meeting.tell("here 1", "")
    with pytest.raises(RunError, match=r"rank 2 of 3 has not come within 0 s; .* `srun python train.py …`"):
        meeting.roll_call(0.1)


def test_the_process_group_meets_on_the_port_of_the_notes() -> None:
    meeting, port = on_this_machine(1, lambda: None)
    store = dist.TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, multi_tenant=True)
    store.set("of the group", "1")
    assert not meeting._has("of the group")
    meeting.tell("folder", "x")
    assert store.get("crosslight 0/folder") == b"x"


def test_nobody_waits_for_a_store_that_is_gone() -> None:
    server = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", server.port, None, False, wait_for_workers=False)
    found: list[Any] = []

    def wait() -> None:
        try:
            Meeting(client, Launch(by="srun", rank=1, processes=2)).ask("folder")
        except RunError as error:
            found.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.1)
    del server
    waiting.join(10)
    assert found == ["rank 0 is gone, or its machine is; its own output says why"]
