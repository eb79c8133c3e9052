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

import torch

from crosslight.runs.folder import RunFolder

RANK_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")


def started_from_outside() -> bool:
    """Whether torchrun, SLURM or `other_ranks` has started this process as one of several."""
    return "LOCAL_RANK" in os.environ or int(os.environ.get("SLURM_NTASKS", "1")) > 1


def rank() -> int:
    """The number of this process in its run; 0 writes the files."""
    if "RANK" in os.environ:  # torchrun
        return int(os.environ["RANK"])
    if int(os.environ.get("SLURM_NTASKS", "1")) > 1:  # a job of one task has SLURM_PROCID=0 too, for all that it starts
        return int(os.environ["SLURM_PROCID"])
    return int(os.environ.get("LOCAL_RANK", "0"))


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
def other_ranks(folder: RunFolder, processes: int) -> Iterator[None]:
    """Ranks 1 … `processes` - 1 run while the context is entered; this process is rank 0.

    On an error here the others are ended; if another one fails, so do we.
    """
    if processes == 1 or started_from_outside():
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, "-m", "crosslight.app", str(folder.path.absolute())]
    others = [
        subprocess.Popen(
            command,
            env={**os.environ, **shared, "LOCAL_RANK": str(rank)},
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
        failure = 0
        for process in others:
            if failure or not finished:
                process.terminate()
            failure = process.wait() or failure
        if failure and finished:
            raise subprocess.CalledProcessError(failure, command)
