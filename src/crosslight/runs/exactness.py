"""What decides the last bits of a run besides its config, and when a run's bits may differ from another's.

See docs/decisions/exactness.md.
"""

import platform
from pathlib import Path
from typing import Any

import torch

from crosslight.runs.trainer import TrainerRecipe


def circumstances(recipe: TrainerRecipe) -> dict[str, Any]:
    """What a resumed run is compared with; a checkpoint holds it."""
    on_gpu = recipe.on_gpu
    return {
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name() if on_gpu else _processor(),
        "instructions": None if on_gpu else torch.backends.cpu.get_cpu_capability(),
        "threads of a process": None if on_gpu else torch.get_num_threads(),
        "precision": recipe.precision,
        "compile": recipe.compile,
        "reduction": "ordered" if recipe.ordered else "fast",
        "processes": recipe.total_processes,
    }


def differences(before: dict[str, Any], recipe: TrainerRecipe, update: int) -> list[str]:
    """Why the bits may differ from those of a run that went on as it began, one sentence a reason."""
    now = circumstances(recipe)
    matters = [key for key in now if key != "processes" or not recipe.ordered]
    return [
        f"from update {update} on: {key} was {before.get(key)} and is now {now[key]}"
        for key in matters
        if before.get(key) != now[key]
    ]


def doubts(recipe: TrainerRecipe) -> list[str]:
    """Why two runs of the same config may differ in their bits on this machine."""
    reasons = []
    if not recipe.ordered and recipe.total_processes > 1:
        reasons.append("trainer.reduction: the fast one leaves the order of sums over processes to the library")
    if recipe.on_gpu and not recipe.deterministic:
        reasons.append("trainer.deterministic: false lets a GPU choose kernels that add in no fixed order")
    return reasons


def price_of_determinism(recipe: TrainerRecipe, parameters: int) -> str:
    """What `trainer.deterministic=true` costs, as a sentence."""
    gathered = recipe.total_virtual_ranks if recipe.total_virtual_ranks > 1 else 0
    memory = gathered * parameters * 4 / 2**20
    return (
        "deterministic: torch uses only kernels that repeat their bits (an operation without one is an error, some are "
        f"slower), and the ordered reduction holds {gathered} gradients in each process ({memory:.0f} MB) and "
        "communicates after the backward pass, not during it"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
