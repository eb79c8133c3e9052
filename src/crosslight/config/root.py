"""The typed root of every configuration: the run-wide scalars and the groups, and nothing else."""

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf


@dataclass
class RunConfig:
    """`expect` maps test metrics to the least value that the recipe promises; null promises nothing.

    `cache` is the folder for what can be made again: prepared data, trained tokenizers, parts of hub data sets.
    `resume` names the folder of a run to continue; its own config is used, with the command line's values on top.
    """

    name: str = MISSING
    seed: int = 1
    cache: str = MISSING
    resume: str | None = None
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
    """Make `run_config` known to Hydra, and the `first_of` resolver that picks the run folder."""
    ConfigStore.instance().store(name="run_config", node=RunConfig)
    OmegaConf.register_new_resolver("first_of", lambda *choices: next(c for c in choices if c), replace=True)
