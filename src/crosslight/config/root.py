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
    logger: Any = None


def register() -> None:
    """Make `run_config` known to Hydra, and the resolvers `first_of` (picks the run folder) and `share_of`."""
    ConfigStore.instance().store(name="run_config", node=RunConfig)
    OmegaConf.register_new_resolver("first_of", lambda *choices: next(c for c in choices if c), replace=True)
    OmegaConf.register_new_resolver("share_of", _share_of, replace=True)


def _share_of(share: Any, whole: Any) -> Any:
    """A share of a number of steps, rounded; what is no number stays as it is, for the signature check to say so."""
    return round(share * whole) if isinstance(share, int | float) and isinstance(whole, int | float) else whole
