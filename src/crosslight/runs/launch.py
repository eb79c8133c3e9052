"""Start the other processes of a run on this machine, each with its rank in the environment.

Lightning's own launcher would run the user's command again: under a Hydra sweep the whole sweep. Ours runs the one
run folder, whose config is already resolved.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from crosslight.runs.folder import RunFolder

RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")


def started_from_outside() -> bool:
    """Whether torchrun, SLURM or `other_ranks` has started this process as one of several."""
    return "LOCAL_RANK" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def rank() -> int:
    """The number of this process in its run; 0 writes the files."""
    if "RANK" in os.environ:  # torchrun
        return int(os.environ["RANK"])
    return int(os.environ.get("SLURM_PROCID", os.environ.get("LOCAL_RANK", "0")))


@contextmanager
def other_ranks(folder: RunFolder, processes: int) -> Iterator[None]:
    """Ranks 1 … `processes` - 1 run while the context is entered; this process is rank 0.

    All get the same share of the cores. On an error here the others are ended; if another one fails, so do we.
    """
    if processes == 1 or started_from_outside():
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    command = [sys.executable, "-m", "crosslight.app", str(folder.path.absolute())]
    others = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": threads},
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        for rank in range(1, processes)
    ]
    before = {name: os.environ.get(name) for name in RANK_VARIABLES}
    os.environ.update(shared, LOCAL_RANK="0")
    finished = False
    try:
        yield
        finished = True
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        for process in others:
            if not finished:
                process.terminate()
            code = process.wait()
            if finished and code:
                raise subprocess.CalledProcessError(code, command)
