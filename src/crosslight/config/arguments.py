"""The `key=value` arguments of the scripts, in the manner of the training command."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from crosslight.config.check import nearest
from crosslight.errors import ConfigError, CrosslightError


def script_arguments(
    usage: str | None, known: Mapping[str, Callable[[str], Any]], *, needed: Sequence[str] = ()
) -> dict[str, Any]:
    """The command line as a dictionary; `decode.x=…` and `data.x=…` are gathered under `decode` and `data.values`.

    `--help` prints the usage. Raises a ConfigError for an unknown key, a value of the wrong kind or a missing key.
    """
    if {"-h", "--help"} & set(sys.argv[1:]):
        print((usage or "").strip())
        sys.exit(0)
    arguments: dict[str, Any] = {"decode": {}, "data.values": {}}
    for text in sys.argv[1:]:
        key, equals, value = text.lstrip("+").partition("=")
        group, dot, setting = key.partition(".")
        if equals and dot and group in ("decode", "data"):
            arguments["decode" if group == "decode" else "data.values"][setting] = value_of(key, value)
        elif equals and key == "decode":
            raise ConfigError("decode: a run keeps its search; change its settings, as in decode.beam_size=8")
        elif not equals or key not in known:
            raise ConfigError(f"{text}: arguments are key=value{nearest(key, list(known))}")
        else:
            try:
                arguments[key] = known[key](value)
            except ValueError as error:
                raise ConfigError(f"{key}: {value!r} is not a {known[key].__name__}") from error
    for key in needed:
        if key not in arguments:
            raise ConfigError(f"{key}: missing; give {key}=…")
    return arguments


def with_values(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The config with `key=value` texts on top of it, in place."""
    for override in overrides:
        key, _, text = override.partition("=")
        OmegaConf.update(config, key, value_of(key, text), force_add=True)
    return config


def run_script(main: Callable[[], None]) -> None:
    """Run a script's `main`; whatever ends it early is a sentence, or nothing, and an exit status."""
    try:
        main()
    except CrosslightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # who reads our output, `head` for example, has enough of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def checked_output(name: str) -> Path:
    """The file that `output=` names, its folder made; a ConfigError if it cannot be one."""
    path = Path(name)
    if not name or path.is_dir():
        raise ConfigError(f"output={name}: names no file; give output=FILE")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"output: {name} cannot be written ({error.strerror})") from error
    return path


def value_of(key: str, text: str) -> Any:
    """What the training command takes a value for: `1e-3` is a number, `null` is none."""
    try:
        return OverridesParser.create().parse_override(f"x={text}").value()
    except HydraException as error:
        raise ConfigError(f"{key}: {text!r} is not a value that can be read") from error
