"""Compose `conf/` without Hydra's command line, for the scripts and the tests; a config as plain data."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from crosslight.config.command_line import explained, forced
from crosslight.config.root import register
from crosslight.errors import ConfigError

CONF = Path(__file__).parents[3] / "conf"


def compose(overrides: Sequence[str], config_name: str = "train") -> DictConfig:
    """The config that `python train.py <overrides>` would run. Raises a ConfigError in our words."""
    register()
    try:
        with initialize_config_dir(config_dir=str(CONF), version_base="1.3"):
            return hydra_compose(config_name, overrides=forced(overrides))
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(explained(error, overrides)) from error


def plain(config: DictConfig) -> dict[str, Any]:
    """The config as plain data, all interpolations resolved."""
    try:
        container = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{error.full_key}: {str(error).partition(chr(10))[0]}") from error
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}
