"""The typed root of every configuration: the run-wide scalars and the groups, and nothing else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf


@dataclass
class RunConfig:
    """`expect` maps test metrics to the least value that the recipe promises; null promises nothing.

    `cache` is the folder for what can be made again: prepared data, trained tokenizers, parts of hub data sets.
    `resume` names the folder of a run to continue; its own config is used, with the command line's values on top.
    `resume=auto` continues the newest run of this name, or begins one: the same command serves for both.
    `init_from` names the folder of a run with whose tokenizer and final weights a new run begins, at update 0.
    `unsafe_classes` lets a resumed folder name classes from anywhere, which can run any code.
    """

    name: str = MISSING
    seed: int = 1
    cache: str = MISSING
    resume: str | None = None
    init_from: str | None = None
    unsafe_classes: bool = False
    expect: dict[str, float] | None = None
    model: Any = MISSING
    data: Any = MISSING
    cleaning: Any = MISSING
    batching: Any = MISSING
    tokenizer: Any = MISSING
    task: Any = MISSING
    optimizer: Any = MISSING
    scheduler: Any = MISSING
    decode: Any = MISSING
    trainer: Any = MISSING
    callbacks: Any = None
    averaging: Any = MISSING
    logger: Any = None


def register() -> None:
    """Make `run_config` known to Hydra, and the resolvers `run_folder` and `share_of`."""
    ConfigStore.instance().store(name="run_config", node=RunConfig)
    OmegaConf.register_new_resolver("run_folder", run_folder, replace=True)
    OmegaConf.register_new_resolver("share_of", _share_of, replace=True)


def run_folder(resume: str | None, runs: str, new: str) -> str:
    """Where Hydra's job runs: the folder to resume, or a `new` one below `runs`, or with `auto` the newest there."""
    if resume not in (None, "auto"):
        return resume
    begun = sorted(Path(runs).glob("*/config.yaml"), key=lambda file: file.parent.name) if resume == "auto" else []
    return str(begun[-1].parent) if begun else f"{runs}/{new}"


def _share_of(share: Any, whole: Any) -> Any:
    """A share of a number of steps, rounded; what is no number stays as it is, for the signature check to say so."""
    return round(share * whole) if isinstance(share, int | float) and isinstance(whole, int | float) else whole
