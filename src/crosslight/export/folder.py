"""An exported model as a folder: written whole or not at all, with a note of what it was made from."""

import json
import os
import shutil
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from crosslight.decoding.protocols import Search
from crosslight.errors import ConfigError, RunError
from crosslight.export.ctranslate2_engine import CTranslate2Engine
from crosslight.export.ctranslate2_spec import ctranslate2_spec, max_positions
from crosslight.runs.checkpoints import file_hash
from crosslight.runs.folder import RunFolder
from crosslight.tokenizers.base import Tokenizers

CTRANSLATE2 = "ctranslate2"
NOTE = "crosslight.json"


def check_format(key: str, name: str) -> None:
    """Raise a ConfigError if there is no such format, or its package is not installed. `key` named it."""
    if name != CTRANSLATE2:
        raise ConfigError(f"{key}: {name!r} is not known; there is {CTRANSLATE2}")
    if find_spec(CTRANSLATE2) is None:
        raise ConfigError(f"{key}={CTRANSLATE2}: the package is not installed; pip install {CTRANSLATE2}")


def write_export(model: Any, tokenizers: Tokenizers, checkpoint: Path, path: Path) -> None:
    """Write a model, whose weights are those in `checkpoint`, as a folder of CTranslate2.

    It is made beside `path` under a temporary name and renamed. A folder that is there is replaced if it is an export,
    and refused with a ConfigError if it is anything else.
    """
    if path.exists() and not (path / NOTE).is_file() and not (path.is_dir() and not any(path.iterdir())):
        raise ConfigError(f"output={path}: holds something else than an export; give a folder that is not there yet")
    spec = ctranslate2_spec(model, tokenizers)
    note = {
        "format": CTRANSLATE2,
        "checkpoint": checkpoint.name,
        "checkpoint_sha256": file_hash(checkpoint),
        "tokenizer_sha256": tokenizers.content_hash,
        "max_positions": max_positions(model),
        "versions": {CTRANSLATE2: version(CTRANSLATE2)},
    }
    temporary, before = (path.with_name(f"{path.name}.{kind}{os.getpid()}") for kind in ("tmp", "old"))
    try:
        temporary.mkdir(parents=True)
        spec.validate()
        spec.optimize()
        spec.save(str(temporary))
        (temporary / NOTE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
        if path.exists():
            path.rename(before)
        temporary.rename(path)
    except OSError as error:
        raise ConfigError(f"output={path}: cannot be written ({error.strerror or error})") from error
    finally:
        for leftover in (temporary, before):
            shutil.rmtree(leftover, ignore_errors=True)


def load_engine(
    name: str,
    folder: RunFolder,
    checkpoint: Path,
    tokenizers: Tokenizers,
    search: Search,
    device: str,
    budget: int,
) -> CTranslate2Engine:
    """The engine of that name on what was exported from a checkpoint of a run.

    A RunError says how to export, if that was not done yet, or if the checkpoint or the tokenizer is another by now. A
    checkpoint that is not there any more is not asked for: a model in use needs only what was exported.
    """
    check_format("engine", name)
    path = folder.exported / name
    chosen = "" if checkpoint == folder.best else f" checkpoint={checkpoint.name}"
    remedy = f"python scripts/export.py run={folder.path} format={name}{chosen}"
    if not (path / NOTE).is_file():
        raise RunError(f"{path}: nothing is exported there; {remedy} does it")
    try:
        note = json.loads((path / NOTE).read_text(encoding="utf-8"))
        made_of = note["checkpoint"], note["checkpoint_sha256"], note["tokenizer_sha256"]
        limit = note["max_positions"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / NOTE}: cannot be read ({error}); {remedy} makes it anew") from error
    if made_of[0] != checkpoint.name:
        raise RunError(f"{path}: was made from {made_of[0]}, not from {checkpoint.name}; {remedy} makes it anew")
    if checkpoint.is_file() and file_hash(checkpoint) != made_of[1]:
        raise RunError(f"{path}: {checkpoint.name} has changed since this was made from it; {remedy} makes it anew")
    if tokenizers.content_hash != made_of[2]:
        raise RunError(f"{path}: was made for another tokenizer than {folder.tokenizer} holds; {remedy} makes it anew")
    try:
        return CTranslate2Engine(
            path, tokenizers, search, limit=limit, budget=budget, device=device, threads=torch.get_num_threads()
        )
    except RuntimeError as error:
        raise RunError(f"{path}: cannot be loaded ({' '.join(str(error).split())}); {remedy} makes it anew") from error
