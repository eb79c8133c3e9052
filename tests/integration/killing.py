"""Runs that are killed by SIGKILL at chosen and at random moments and resumed, until they are finished.

Every process appends what it does to a file (`kill_log.py`), so that a test knows where a kill hit, and can compare all
that was ever computed, also what was lost and done again, with a run that nobody disturbed.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commands import ROOT, environment
from forked import Forked, ForkServer

from crosslight.runs.folder import RunFolder, update_of

SPYING = {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))}
"""With these variables a process finds `kill_log`."""

WORDS = {"start": "training", "update": "training", "validated": "training", "micro-batch": "inside an update"}

AT_MOST = 8
"""So many updates a start waits for its moment; it is killed then in any case."""


class Kill(NamedTuple):
    """What was asked for, what the run was doing when it was hit, and the last update that it had done."""

    wanted: str
    phase: str
    update: int
    processes: int


class KilledRun:
    """A run below `work`, started with `options` and resumed until it is finished.

    With `auto` each start is the same command, with `resume=auto`; else a resume names the folder and nothing more.
    """

    def __init__(self, server: ForkServer, work: Path, options: Sequence[str], *, seed: int, auto: bool) -> None:
        self.server, self.work, self.auto, self.random = server, work, auto, random.Random(seed)
        self.log, self.output = work / "killed.steps", work / "killed.output"
        self.options = [*options, *log_to(self.log)]
        self.kills: list[Kill] = []
        self.resumed: list[int] = []  # after which update each start with a checkpoint went on
        self._seconds_to_start = 2.0

    @property
    def folder(self) -> Path:
        """The run folder; of those that `resume=auto` has made, the one with a run in it."""
        begun = sorted(self.work.glob("outputs/killed/*/config.yaml"))
        return begun[-1].parent if begun else self.work / "killed"

    def start(self, *changes: str) -> Forked:
        """Begin, or go on, in a session of its own."""
        if self.auto:
            what = [*self.options, "name=killed", "resume=auto"]
        elif (self.folder / "config.yaml").is_file():
            what = [f"resume={self.folder}", "unsafe_classes=true"]
        else:
            what = [*self.options, f"hydra.run.dir={self.folder}"]
        with open(self.output, "ab") as output, open(os.devnull, "rb") as nothing:
            ends = {"stdin": nothing.fileno(), "stdout": output.fileno(), "stderr": output.fileno()}
            line = [str(ROOT / "train.py"), *what, *changes]
            return self.server.start(line, cwd=self.work, environment=environment(**SPYING), new_session=True, **ends)

    def kill(self, wanted: str, *changes: str) -> bool:
        """Start, wait for the moment that `wanted` names, and kill. False if the run was finished before that.

        `time`: at a random time; `update`: in the course of one of the next updates; `validation`: in the next one;
        `saving` and `saving the best`: as soon as such a checkpoint is being written. With `… of rank N` only that
        process is killed, and the others have to end by themselves. With `… by SIGTERM` the run may save before.
        """
        what, _, how = wanted.partition(" by ")
        moment, _, rank = what.partition(" of rank ")
        seen, checkpoints, saved = size_of(self.log), self._checkpoints(), self._saved()
        process = self.start(*changes)
        try:
            self._wait_for(moment, process, seen, checkpoints)
            if process.poll() is not None:
                assert process.returncode == 0, self._said()
                return False
            if rank or how:
                self._end(process, int(rank or 0), signal.Signals[how or "SIGKILL"])
        finally:
            if members(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
            wait_until(lambda: not members(process.pid), 60, "killed processes are gone")
            process.wait(timeout=60)
        steps = self._begun(seen, saved)
        last = steps[-1] if steps else {"step": "booting", "update": saved}
        phase = self._being_saved(checkpoints) or WORDS.get(last["step"], last["step"])
        world = next((step["world"] for step in steps if step["step"] == "start"), 0)
        self.kills.append(Kill(wanted, f"{phase} ({how})" if how else phase, last["update"], world))
        return True

    def _end(self, process: Forked, rank: int, number: signal.Signals) -> None:
        """Signal one process and see all of the run end by itself."""
        pid = next(step["pid"] for step in read_steps(self.log, rank)[::-1] if step["step"] == "start")
        os.kill(pid, number)
        status = process.wait(timeout=60)
        assert status == 143 if number == signal.SIGTERM else status != 0, self._said()
        wait_until(lambda: not members(process.pid), 60, "the other processes end by themselves")

    def finish(self, *changes: str) -> None:
        """Go on, undisturbed, to the end."""
        seen, saved = size_of(self.log), self._saved()
        process = self.start(*changes)
        try:
            assert process.wait(timeout=300) == 0, self._said()
        finally:
            process.kill()
        self._begun(seen, saved)

    def _begun(self, seen: int, saved: int) -> list[dict[str, Any]]:
        """The steps of this start, which has to have gone on where the newest checkpoint was."""
        steps = read_steps(self.log, 0, seen)
        if steps:
            assert (steps[0]["step"], steps[0]["update"]) == ("start", saved)
            self.resumed += [saved] if saved else []
        return steps

    def _wait_for(self, moment: str, process: Forked, seen: int, checkpoints: set[str]) -> None:
        def here() -> list[dict[str, Any]]:
            return read_steps(self.log, 0, seen)

        def count(name: str) -> int:
            return sum(step["step"] == name for step in here())

        if moment == "time":
            time.sleep(self.random.uniform(0.0, 2.0 * self._seconds_to_start))
            return
        begun = time.monotonic()
        self._watch(process, lambda: size_of(self.log) > seen)
        self._seconds_to_start = time.monotonic() - begun
        if moment == "update":
            updates = self.random.randint(1, 4)
            self._watch(process, lambda: count("update") >= updates)
            time.sleep(self.random.uniform(0.0, 0.05))
        elif moment == "validation":
            self._watch(process, lambda: count("validation") > 0 or count("update") > AT_MOST)
            time.sleep(self.random.uniform(0.0, 0.1))
        else:
            self._watch(process, lambda: self._being_saved(checkpoints) == moment or count("update") > AT_MOST, 5e-4)

    def _watch(self, process: Forked, happened: Callable[[], bool], pause: float = 0.002) -> None:
        end = time.monotonic() + 120
        while process.poll() is None and not happened():
            assert time.monotonic() < end, self._said()
            time.sleep(pause)

    def _saved(self) -> int:
        """After which update the newest checkpoint was saved."""
        return max([update_of(path) for path in RunFolder(self.folder).updates_saved()], default=0)

    def _checkpoints(self) -> set[str]:
        """The paths of all files below the folder of checkpoints."""
        top = self.folder / "checkpoints"
        return {os.path.relpath(os.path.join(folder, name), top) for folder, _, names in os.walk(top) for name in names}

    def _being_saved(self, before: set[str]) -> str:
        """What file is half written that was not there before: `saving`, `saving the best`, or nothing."""
        half = [name for name in self._checkpoints() - before if ".tmp" in name]
        return "" if not half else "saving the best" if half[0].startswith("best") else "saving"

    def _said(self) -> str:
        return self.output.read_text()[-3000:]


def log_to(path: Path) -> list[str]:
    """Settings that make a run write its steps down."""
    return [
        "+callbacks.kill_log._target_=kill_log.KillLog",
        f"+callbacks.kill_log.path={path}",
        "+callbacks.kill_log.die=null",
    ]


def of_rank(path: Path, rank: int) -> Path:
    """The file of one process."""
    return path.with_name(f"{path.name}.{rank}")


def size_of(path: Path) -> int:
    """How much rank 0 has written."""
    return of_rank(path, 0).stat().st_size if of_rank(path, 0).is_file() else 0


def read_steps(path: Path, rank: int, start: int = 0) -> list[dict[str, Any]]:
    """What a rank has done, in order, from a place in its file on. A line may have been cut by a kill."""
    if not of_rank(path, rank).is_file():
        return []
    with open(of_rank(path, rank), "rb") as file:
        file.seek(start)
        return [json.loads(line) for line in file.read().splitlines() if line.endswith(b"}")]


def members(session: int) -> list[int]:
    """The living processes of a session."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if session in _living(pid)]


def _living(pid: int) -> Iterator[int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, _, _, session = file.read().rpartition(b")")[2].split()[:4]
    except (FileNotFoundError, ProcessLookupError):
        return
    if state not in b"ZX":
        yield int(session)


def wait_until(happened: Callable[[], bool], seconds: float, what: str) -> None:
    """Look every few milliseconds."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, what
        time.sleep(0.005)
