"""Start the other processes of a run on this machine, and end them with it.

Lightning's own launcher would run the user's command again: under a Hydra sweep the whole sweep. Ours starts
`python -m crosslight.app`, which asks rank 0 for the run folder, whose config is already resolved.

All processes stay in one process group, so a terminal's Ctrl-C reaches each of them. Nothing passes signals on: what a
signal to one process means is agreed on between updates.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from crosslight.errors import RunError
from crosslight.runs.folder import RunFolder
from crosslight.runs.meeting import Meeting, of_launch, on_this_machine
from crosslight.runs.ranks import TORCHRUN, started_from_outside
from crosslight.runs.record import Record, now

POLL_SECONDS = 0.2
INTERRUPTED = (130, 138, 143)
"""Statuses of a process that was asked to end; rank 0 was asked, too, and may have a checkpoint to write."""
GRACE_SECONDS = 15.0
"""How long rank 0 may take to notice by itself that another one has failed, and the others to end when told to."""


@contextmanager
def pinned_threads(threads: int | None) -> Iterator[None]:
    """This process computes with so many threads while the context is entered (None: as many as torch likes).

    How many threads share a sum decides its last bits, and Lightning would otherwise choose a number by itself.
    """
    before, variable = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
    if threads is not None:
        torch.set_num_threads(threads)
        os.environ["OMP_NUM_THREADS"] = str(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        os.environ.pop("OMP_NUM_THREADS", None) if variable is None else os.environ.update(OMP_NUM_THREADS=variable)


@contextmanager
def other_ranks(folder: RunFolder, processes: int) -> Iterator[Meeting | None]:
    """The other processes of the run work in `folder` while the context is entered; this process is rank 0.

    Those of torchrun or srun have waited for it; otherwise ranks 1 … `processes` - 1 are started here. On an error here
    these are ended; if one of them fails, a RunError says which and why. None: there are no others.
    """
    if started_from_outside():
        meeting = of_launch()
        meeting.tell("folder", str(folder.path.absolute()))
        with meeting.explaining():
            yield meeting
        return
    if processes == 1:
        yield None
        return
    children = _Children(folder)
    meeting, port = on_this_machine(processes, children.check)
    meeting.tell("folder", str(folder.path.absolute()))
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    before = {name: os.environ.get(name) for name in TORCHRUN}
    try:
        for rank in range(1, processes):
            children.start(rank, shared)
        os.environ.update({name: str(value) for name, value in {**shared, "RANK": 0, "LOCAL_RANK": 0}.items()})
        with children.guarded(), meeting.explaining():
            yield meeting
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class _Children:
    """The processes that rank 0 has started. What they print is in `rank<N>.log` of the run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._printed_before: dict[int, int] = {}
        self._left = threading.Event()

    def start(self, rank: int, shared: dict[str, object]) -> None:
        told = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        with self._log(rank).open("ab") as log:
            self._printed_before[rank] = log.tell()
            self._processes[rank] = subprocess.Popen(
                [sys.executable, "-m", "crosslight.app", str(os.getpid())],
                env={**os.environ, **told},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def check(self) -> None:
        """Raise a RunError if one has failed."""
        for rank, process in self._processes.items():
            if process.poll() and process.returncode not in INTERRUPTED:
                raise RunError(self._failure(rank, process.returncode))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """All are ended when the context is left; rank 0 is, when one of them has failed and it does not notice."""
        guard = threading.Thread(target=self._guard, daemon=True)
        guard.start()
        try:
            yield
            for process in self._processes.values():
                process.wait(GRACE_SECONDS)
            self.check()
        except subprocess.TimeoutExpired:
            raise RunError(f"a process of the run has not ended {GRACE_SECONDS:.0f} s after rank 0") from None
        finally:
            self._left.set()
            self._end()

    def _end(self) -> None:
        running = [process for process in self._processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:  # it waits for us in a collective
                process.kill()
                process.wait()
        for rank in self._processes:
            if not self._log(rank).stat().st_size:
                self._log(rank).unlink()

    def _guard(self) -> None:
        """NCCL may wait many minutes for a process that is gone, and no exception reaches a thread that waits there."""
        while not self._left.wait(POLL_SECONDS):
            try:
                self.check()
            except RunError as error:
                if self._left.wait(GRACE_SECONDS):
                    return
                Record(self.folder.record).update(status="failed", finished=now(), error=f"RunError: {error}")
                print(f"error: {error}", file=sys.stderr, flush=True)
                for process in self._processes.values():
                    process.kill()
                os._exit(2)

    def _failure(self, rank: int, status: int) -> str:
        with self._log(rank).open("rb") as log:
            log.seek(self._printed_before[rank])
            lines = log.read().decode("utf-8", "replace").rstrip().splitlines()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        if lines and lines[-1].startswith("error: "):
            return f"rank {rank}: {lines[-1].removeprefix('error: ')}"
        last = "".join(f"\n  {line}" for line in lines[-5:]) if lines else " nothing"
        return f"rank {rank} {how}; the last that {self._log(rank)} has of it:{last}"

    def _log(self, rank: int) -> Path:
        return self.folder.path / f"rank{rank}.log"


def end_with(parent: int) -> None:
    """Have Linux kill this process as soon as the one that started it is gone, however that ended."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("error: the process that started this one is gone")
