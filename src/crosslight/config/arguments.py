"""The `key=value` arguments of the scripts, in the manner of the training command."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from crosslight.config.check import nearest
from crosslight.errors import ConfigError


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
            arguments["decode" if group == "decode" else "data.values"][setting] = _value(key, value)
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


def _value(key: str, text: str) -> Any:
    """What the training command takes a value for: `1e-3` is a number, `null` is none."""
    try:
        return OverridesParser.create().parse_override(f"x={text}").value()
    except HydraException as error:
        raise ConfigError(f"{key}: {text!r} is not a value that can be read") from error
