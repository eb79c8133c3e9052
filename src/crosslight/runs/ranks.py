"""Which of a run's processes this one is: what torchrun, srun or our own launcher says in the environment.

Imports no torch, so that a command knows its place before it does anything.
"""

import os
from dataclasses import dataclass
from typing import Literal

from crosslight.errors import ConfigError

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun tells each process; `other_ranks` tells its own the same."""
SRUN = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_LOCALID", "SLURM_NODEID")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The place of this process among `processes`, of which each machine has `local_processes`; `by` None: alone."""

    by: Literal["torchrun", "srun"] | None = None
    rank: int = 0
    processes: int = 1
    node: int = 0
    local_rank: int = 0
    local_processes: int = 1

    def __post_init__(self) -> None:
        if self.processes % self.local_processes:
            raise ConfigError(
                f"{self.by}: {self.processes} processes, of which {self.local_processes} on this machine; "
                f"start equally many on each"
            )

    @property
    def nodes(self) -> int:
        """How many machines."""
        return self.processes // self.local_processes


def launch() -> Launch:
    """What the environment says now. A ConfigError names a variable that is missing or no number.

    torchrun comes first, for srun may have started it. One task of SLURM is no launch: it has the variables, too, and
    all that it starts inherits them. So does a shell of `salloc`, but without SLURM_PROCID.
    """
    environment = os.environ
    if "LOCAL_RANK" in environment:
        number = _numbers("torchrun", TORCHRUN, sign="LOCAL_RANK", texts=("MASTER_ADDR",))
        local = number["LOCAL_WORLD_SIZE"]
        return Launch(
            by="torchrun",
            rank=number["RANK"],
            processes=number["WORLD_SIZE"],
            node=int(environment.get("GROUP_RANK", number["RANK"] // local)),
            local_rank=number["LOCAL_RANK"],
            local_processes=local,
        )
    if "SLURM_PROCID" in environment and environment.get("SLURM_NTASKS", "1") != "1":
        number = _numbers("srun", SRUN, sign="SLURM_PROCID")
        tasks, nodes = number["SLURM_NTASKS"], number["SLURM_NNODES"]
        if tasks % nodes:
            raise ConfigError(f"srun: {tasks} tasks cannot be equally many on {nodes} nodes; use --ntasks-per-node")
        return Launch(
            by="srun",
            rank=number["SLURM_PROCID"],
            processes=tasks,
            node=number["SLURM_NODEID"],
            local_rank=number["SLURM_LOCALID"],
            local_processes=int(environment.get("SLURM_NTASKS_PER_NODE", tasks // nodes)),
        )
    return Launch()


def _numbers(by: str, names: tuple[str, ...], sign: str, texts: tuple[str, ...] = ()) -> dict[str, int]:
    """The variables as numbers, those in `texts` left out."""
    for name in names:
        value = os.environ.get(name)
        if value is None or not (name in texts or value.isdecimal()):
            found = "is missing" if value is None else f"is {value!r}, no number"
            raise ConfigError(f"{name}: {found}, but {by} sets it, and the environment has {sign}")
    return {name: int(os.environ[name]) for name in names if name not in texts}


def started_from_outside() -> bool:
    """Whether torchrun, srun or `other_ranks` has started this process as one of several."""
    return launch().by is not None


def rank() -> int:
    """The number of this process in its run; 0 writes the files."""
    return launch().rank
