"""Where the processes of one launch leave notes for each other, from their start until torch's process group exists.

It is a TCPStore on the port on which the group meets later: in torchrun's agent, or in rank 0. So it knows no earlier
launch, needs no disk, and tells a process that waits when there is nobody left to wait for.
"""

import functools
import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType

import torch.distributed as dist

from crosslight.errors import ConfigError, CrosslightError, RunError
from crosslight.runs.ranks import Launch, launch

log = logging.getLogger(__name__)

POLL_SECONDS = 0.2
ROLL_CALL_SECONDS = 300.0
ECHO_SECONDS = 2.0
LAST_SECONDS = 5 * POLL_SECONDS
"""How long the others wait to end after rank 0, so that the launcher blames the right one."""
OVER = "over"


class Meeting:
    """Notes by key. Entered as a context, it tells the others when this process ends on an error, or is rank 0.

    `watch` is called while waiting; it raises if waiting makes no sense any more.
    """

    def __init__(self, store: dist.Store, place: Launch, watch: Callable[[], None] = lambda: None) -> None:
        self._store, self.place, self.watch = store, place, watch

    def tell(self, key: str, text: str) -> None:
        """Leave a note for all to read."""
        with _somebody_left():
            self._store.set(key, text)

    def ask(self, key: str, patience: float = math.inf) -> str:
        """A note, as soon as it is there; TimeoutError after `patience` seconds.

        If the launch is over before, rank 0 gets a RunError that says why, the others end with its status.
        """
        end = time.monotonic() + patience
        while not self._has(key):
            self.watch()
            if self._has(OVER):
                status, sentence = json.loads(self._get(OVER))
                if self.place.rank == 0:
                    raise RunError(sentence)
                time.sleep(LAST_SECONDS)
                raise SystemExit(status)
            if time.monotonic() > end:
                raise TimeoutError(key)
            time.sleep(POLL_SECONDS)
        return self._get(key)

    def _has(self, key: str) -> bool:
        with _somebody_left():
            return self._store.check([key])

    def _get(self, key: str) -> str:
        with _somebody_left():
            return self._store.get(key).decode()

    def roll_call(self, seconds: float = ROLL_CALL_SECONDS) -> None:
        """Rank 0 waits until all processes have come; a RunError names those that have not."""
        self.tell(f"here {self.place.rank}", "")
        if self.place.rank:
            return
        end = time.monotonic() + seconds
        for rank in range(self.place.processes):
            try:
                self.ask(f"here {rank}", end - time.monotonic())
            except TimeoutError:
                raise RunError(
                    f"rank {rank} of {self.place.processes} has not come within {seconds:.0f} s; all processes of a "
                    f"launch run this command (in a SLURM script: `srun python train.py …`)"
                ) from None

    def agree(self, facts: dict[str, str]) -> None:
        """Go on if these facts are the same on all processes; else all end, rank 0 with a sentence that names one."""
        here = {"host": socket.gethostname(), **facts}
        self.tell(f"facts {self.place.rank}", json.dumps(here))
        if self.place.rank:
            self.ask("agreed")
            return
        for rank in range(1, self.place.processes):
            there = json.loads(self.ask(f"facts {rank}"))
            for name, value in facts.items():
                if there.get(name) != value:
                    raise RunError(
                        f"rank {rank} on {there['host']}: {name} is {there.get(name)}, but {value} on rank 0 "
                        f"({here['host']}); all machines need the same files and the same version of this program"
                    )
        self.tell("agreed", "")

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """An error that echoes a failure elsewhere (a lost connection) becomes what `ask` raises after that."""
        try:
            yield
        except CrosslightError:
            raise
        except Exception:
            with suppress(TimeoutError):
                self.ask("nothing", ECHO_SECONDS)
            raise

    def __enter__(self) -> "Meeting":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.place.rank and (error is None or isinstance(error, SystemExit)):
            return
        status = 0 if error is None else 2
        if isinstance(error, SystemExit) and not isinstance(error.code, str):
            status = error.code or 0
        reason = str(error) if isinstance(error, CrosslightError) else f"{kind and kind.__name__}: {error}"
        sentence = f"rank {self.place.rank} on {socket.gethostname()}: {reason}"
        try:
            self._store.compare_set(OVER, "", json.dumps([status, sentence]))
        except dist.DistError:
            return  # nobody is left to be told
        if status and self.place.rank == 0:
            time.sleep(2 * POLL_SECONDS)  # the store may live in this process; the others have yet to read it


@contextmanager
def _somebody_left() -> Iterator[None]:
    try:
        yield
    except dist.DistError as error:
        raise RunError("rank 0 is gone, or its machine is; its own output says why") from error


@functools.cache
def of_launch() -> Meeting:
    """The meeting of all that torchrun, srun or `other_ranks` has started with this process."""
    place = launch()
    address, port = _meeting_point(place)
    in_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store = _store(address, port, serves=place.rank == 0 and not in_agent)
    except dist.DistError as error:
        what = "cannot be opened" if place.rank == 0 else "cannot be reached"
        raise RunError(
            f"{address}:{port}: the meeting point of all processes {what} from {socket.gethostname()}; "
            f"check the address, or choose another port with MASTER_PORT"
        ) from error
    meeting = Meeting(dist.PrefixStore(f"crosslight {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store), place)
    meeting.roll_call()
    return meeting


def on_this_machine(processes: int, watch: Callable[[], None]) -> tuple[Meeting, int]:
    """A meeting of processes that this one, rank 0, is about to start, and its port."""
    store = _store("127.0.0.1", 0, serves=True)
    place = Launch(processes=processes, local_processes=processes)
    return Meeting(dist.PrefixStore("crosslight 0", store), place, watch), store.port


def _store(address: str, port: int, *, serves: bool) -> dist.TCPStore:
    # multi-tenant: the process group will open a store on the same port in this process and get the same server
    patience = timedelta(seconds=ROLL_CALL_SECONDS)
    return dist.TCPStore(address, port, None, serves, patience, wait_for_workers=False, multi_tenant=True)


def _meeting_point(place: Launch) -> tuple[str, int]:
    """Address and port. Under srun: the first host of the job, and a port made of the job's number, as in Lightning."""
    if place.by == "srun":
        from lightning.fabric.plugins.environments import SLURMEnvironment

        hosts = SLURMEnvironment.resolve_root_node_address(os.environ.get("SLURM_NODELIST", "127.0.0.1"))
        os.environ.setdefault("MASTER_ADDR", hosts)
        os.environ.setdefault("MASTER_PORT", str(15000 + int(os.environ.get("SLURM_JOB_ID", "0")[-4:])))
    try:
        return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except ValueError:
        raise ConfigError(f"MASTER_PORT: {os.environ['MASTER_PORT']!r} is no number") from None
