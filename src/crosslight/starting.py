"""From Hydra's job to a run: which config, which folder. Separate from train.py so that sweeps and tests share it."""

import logging
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from crosslight.app import train
from crosslight.build import plain
from crosslight.config.arguments import with_values
from crosslight.config.check import check_config
from crosslight.errors import ConfigError, ExpectationError
from crosslight.runs.folder import GROUPS, RunFolder

log = logging.getLogger(__name__)

FOUND = (("trainer", "virtual_ranks"), ("trainer", "precision"), ("batching", "max_tokens"))
"""What the first start of a run finds out and writes into its config."""


def start(cfg: DictConfig) -> None:
    """Train in Hydra's output folder, or go on in the folder that `resume` names, and print that folder last."""
    hydra = HydraConfig.get()
    folder = RunFolder(hydra.runtime.output_dir)
    if cfg.resume and hydra.mode == RunMode.MULTIRUN:
        raise ConfigError("resume: a sweep starts new runs; resume its jobs one by one, each by its folder")
    if cfg.resume == "auto":
        config = continued(plain(cfg), folder)
    elif cfg.resume:
        folder = RunFolder.existing(cfg.resume, "resume")
        if folder.path.resolve() != Path(hydra.runtime.output_dir).resolve():
            raise ConfigError(
                f"hydra.run.dir: resume={cfg.resume} goes on in that folder; to leave it as it is, resume a copy"
            )
        config = plain(resumed(folder, list(hydra.overrides.task)))
    else:
        config = plain(cfg)
    try:
        train(config, folder)
    except ExpectationError:  # the run is whole, only its score is not
        print(shown(folder.path), flush=True)
        raise
    print(shown(folder.path), flush=True)


def resumed(folder: RunFolder, overrides: list[str]) -> DictConfig:
    """The config of the run in `folder` with the command line's values on top.

    Only values can change on the way; another group choice (`model=base`) would be another run. Classes that the
    folder names must be ours, torch's or Lightning's, unless the command line says `unsafe_classes=true`.
    """
    content = folder.read_config()
    values = [override.lstrip("+") for override in overrides]
    values = [value for value in values if not value.startswith("resume=")]
    if "unsafe_classes=true" not in values:
        try:
            check_config(content, trusted_only=True)
        except ConfigError as error:
            raise ConfigError(f"{folder.config}: {error}; unsafe_classes=true trusts this folder") from error
    for value in values:
        key = value.partition("=")[0]
        if key.startswith("~") or ("." not in key and key.partition("/")[0] in (*GROUPS, "experiment")):
            raise ConfigError(
                f"{key}: a resumed run keeps its {key}; only values such as optimizer.lr=… can be changed"
            )
        if (key.startswith("optimizer.") and key != "optimizer.lr") or key == "task.no_decay":
            raise ConfigError(
                f"{key}: comes back with the optimizer's state; of these only optimizer.lr can be changed"
            )
    return with_values(OmegaConf.create(content), values)


def continued(config: dict[str, Any], folder: RunFolder) -> dict[str, Any]:
    """For `resume=auto`: the composed config, with what an earlier start of the run in `folder` has found out.

    That is each of `FOUND` which the composed config leaves to the program (null or `auto`). Elsewhere null means none.
    """
    config = {**config, "resume": None}
    if not folder.config.is_file():
        log.info("resume=auto: there is no run yet; a new one begins in %s", shown(folder.path))
        return config
    log.info("resume=auto: going on in %s", shown(folder.path))
    before = folder.read_config()
    for group, key in FOUND:
        if config[group].get(key) in (None, "auto") and isinstance(before[group], dict):
            config[group] = {**config[group], key: before[group].get(key)}
    return config


def shown(path: Path) -> Path:
    """The path as a user would type it: relative if it lies below the working folder."""
    absolute = path.absolute()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute
