"""The signature check: every `_target_` node of a config is held against the signature that it names.

The constructor is the schema. Unknown and missing keys and scalars of the wrong type are found before anything is
built, with the nearest right name; Hydra alone accepts a misspelt key inside an experiment file.
"""

import difflib
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from crosslight.errors import ConfigError

HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}

RUNTIME: dict[str, set[str]] = {
    "model": {"source_vocab_size", "target_vocab_size", "pad_id"},
    "model.positions": {"d_model", "head_dim"},
    "model.residual": {"d_model", "dropout"},
    "optimizer": {"params"},
    "logger.*": {"save_dir", "name", "version", "purge_step"},
    "trainer": {"unused_parameters"},
    "task.objective": {"pad_id", "load_teacher"},
    "task": {"model", "search", "tokenizer", "target_lang", "test_langs"}
    | {"optimizer", "schedule", "reduction", "clip", "seed"},
}
"""What the program fills in while it builds, by place; a config may not set it."""

TRUSTED = ("crosslight.", "torch.optim.", "lightning.pytorch.")
"""Where the classes of somebody else's run may come from. Functions are refused: `torch.load` runs what it is given."""


def check_config(config: Mapping[str, Any], *, trusted_only: bool = False) -> None:
    """Raise a ConfigError at the first node that its signature does not fit.

    `trusted_only` is for configs from a run folder: a class from elsewhere could do anything.
    """
    for path, node in _nodes(config, ""):
        target = node["_target_"]
        if trusted_only:
            _check_trust(path, node)
        _check_node(path, node, locate(path, target))


def _check_trust(path: str, node: Mapping[str, Any]) -> None:
    target = node["_target_"]
    known = isinstance(target, str) and target.startswith(TRUSTED)  # before it is imported
    found = locate(path, target) if known else None
    if not (inspect.isclass(found) and f"{found.__module__}.".startswith(TRUSTED)):
        packages = ", ".join(package.rstrip(".") for package in TRUSTED)
        raise ConfigError(f"{path}._target_: {target!r} is refused; a run folder may name only classes of {packages}")
    for key, value in node.items():
        if "${" in repr(value):  # an interpolation could make another node after this check
            raise ConfigError(f"{path}.{key}: {value!r} is refused; the config of a run folder is resolved")


def nearest(name: str, known: list[str]) -> str:
    """`; did you mean 'x'?` if a known name is like this one, else the list of known names."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    same_word = (
        [k for k in known if len(name) > 2 and name.removeprefix("n_").removeprefix("n") in k] if not close else []
    )
    if close or same_word:
        return f"; did you mean {(close or same_word)[0]!r}?"
    return f"; it has {', '.join(sorted(known)) or 'none'}"


def locate(path: str, target: str) -> Callable[..., Any]:
    """The class or function that a dotted name stands for."""
    module_name, _, attribute = str(target).rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{path}._target_: {target!r} cannot be imported ({error})") from error


def _nodes(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        if "_target_" in value:
            yield path, value
        for key, inner in value.items():
            yield from _nodes(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _nodes(inner, f"{path}[{number}]")


def _check_node(path: str, node: Mapping[str, Any], target: Callable[..., Any]) -> None:
    parameters = inspect.signature(target).parameters
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    given = {key: value for key, value in node.items() if key not in HYDRA_KEYS}
    runtime = RUNTIME.get(path) or RUNTIME.get(path.rpartition(".")[0] + ".*", set())
    settable = [name for name in parameters if name not in runtime]
    name = getattr(target, "__name__", str(target))
    for key, value in given.items():
        where = f"{path}.{key}"
        if key in runtime:
            raise ConfigError(f"{where}: is not a setting; the program computes it from the rest")
        if key not in parameters:
            if open_ended:
                continue
            raise ConfigError(f"{where}: {name} has no parameter {key!r}{nearest(key, settable)}")
        if value == "???":
            raise ConfigError(f"{where}: a value is needed; give {where}=… on the command line")
        annotation = parameters[key].annotation
        if not fits(value, annotation):
            chosen = isinstance(value, str) and getattr(annotation, "_is_protocol", False)
            hint = f"; a choice is written {where.replace('.', '/')}={value}" if chosen else ""
            raise ConfigError(f"{where}: {value!r} is not {_described(annotation)}{hint}")
    if node.get("_partial_") and path not in RUNTIME:
        return
    for key in settable:
        parameter = parameters[key]
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and parameter.default is parameter.empty and key not in given:
            raise ConfigError(f"{path}.{key}: missing; {name} needs it")


def fits(value: Any, annotation: Any) -> bool:
    """Whether a plain config value can be meant by an annotation; whatever is no scalar or container passes."""
    if annotation in (inspect.Parameter.empty, Any):
        return True
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, choice) for choice in arguments)
    if origin is typing.Literal:
        return value in arguments
    if annotation in (None, type(None)):
        return value is None
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation in (str, bool):
        return isinstance(value, annotation)
    if origin is dict and arguments:
        return isinstance(value, Mapping) and all(fits(v, arguments[1]) for v in value.values())
    if origin is list and arguments:
        return isinstance(value, list) and all(fits(v, arguments[0]) for v in value)
    if origin is tuple and arguments:
        open_ended = len(arguments) == 2 and arguments[1] is Ellipsis
        kinds = [arguments[0]] * len(value) if open_ended and isinstance(value, list) else arguments
        return isinstance(value, list) and len(value) == len(kinds) and all(map(fits, value, kinds))
    if inspect.isclass(annotation):  # a node, or what a node is not written for
        return isinstance(value, Mapping | list) or annotation is Path
    return True


def _described(annotation: Any) -> str:
    arguments = typing.get_args(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return " or ".join(_described(a) for a in arguments)
    names = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    if typing.get_origin(annotation) is tuple:
        return "a list of " + ", ".join(_described(a) for a in arguments)
    if typing.get_origin(annotation) is list:
        return f"a list, each {_described(arguments[0])}"
    name = str(getattr(annotation, "__name__", annotation))
    return names.get(annotation) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"
