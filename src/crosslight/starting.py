"""From Hydra's job to a run: which config, which folder. Separate from train.py so that sweeps and tests share it."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from crosslight.app import train
from crosslight.build import plain
from crosslight.config.arguments import with_values
from crosslight.errors import ConfigError, ExpectationError
from crosslight.runs.folder import GROUPS, RunFolder


def start(cfg: DictConfig) -> None:
    """Train in Hydra's output folder, or go on in the folder that `resume` names, and print that folder last."""
    hydra = HydraConfig.get()
    folder = RunFolder(hydra.runtime.output_dir)
    if cfg.resume:
        folder = RunFolder.existing(cfg.resume, "resume")
        cfg = resumed(folder, list(hydra.overrides.task))
    try:
        train(plain(cfg), folder)
    except ExpectationError:  # the run is whole, only its score is not
        print(shown(folder.path), flush=True)
        raise
    print(shown(folder.path), flush=True)


def resumed(folder: RunFolder, overrides: list[str]) -> DictConfig:
    """The config of the run in `folder` with the command line's values on top.

    Only values can change on the way; another group choice (`model=base`) would be another run.
    """
    cfg = OmegaConf.load(folder.config)
    assert isinstance(cfg, DictConfig)
    values = [override.lstrip("+") for override in overrides]
    values = [value for value in values if not value.startswith("resume=")]
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
    return with_values(cfg, values)


def shown(path: Path) -> Path:
    """The path as a user would type it: relative if it lies below the working folder."""
    absolute = path.absolute()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute
