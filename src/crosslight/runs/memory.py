"""How much memory one process of a run may fill on this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

GPU_SHARE = 0.9
"""The rest is for what the allocator cannot use, and for the library that talks to other GPUs."""

CPU_SHARE = 0.5
"""The rest is for what the allocator loses (a quarter, as measured), validation, loaders, other programs."""


def memory_limit(*, on_gpu: bool, processes: int) -> int:
    """Bytes that each of the `processes` of this machine may fill: all get what the one with the least could have."""
    if on_gpu:
        devices = range(min(processes, torch.cuda.device_count()))
        return int(GPU_SHARE * min(torch.cuda.mem_get_info(device)[0] for device in devices))
    return int(CPU_SHARE * available() / processes)


def available(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of main memory that are to be had, whichever is lower: of the machine, or of the container we run in."""
    return min([_of_the_machine(proc), *_of_containers(proc, cgroups)])


def _of_the_machine(proc: Path) -> int:
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # no Linux
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _of_containers(proc: Path, cgroups: Path) -> Iterator[int]:
    """What each control group above this process has left of its limit, in both versions of the interface."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = cgroups / "memory" if controllers else cgroups
        limit, usage = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
        below = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(below) + 1):
            folder = top.joinpath(*below[:depth])
            try:
                most, used = (int((folder / f"memory.{name}").read_text()) for name in (limit, usage))
                yield max(0, most - used + _forgettable(folder))
            except (OSError, ValueError):  # no such group here, or "max"
                continue


def _forgettable(folder: Path) -> int:
    """Bytes of files that a control group keeps in memory until somebody needs it."""
    fields = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    found = {name: int(value) for name, value in fields}
    return found.get("total_inactive_file", found.get("inactive_file", 0))
