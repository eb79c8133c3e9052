"""Checkpoint files: plain data with a hash of itself, written atomically, read with `weights_only=True`.

Needs no Lightning.
"""

import hashlib
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from crosslight.errors import RunError
from crosslight.runs.folder import replacing

MODEL_PREFIX = "model."
HASH = "content_sha256"


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Replace a checkpoint, whole or not at all. Where it cannot be written, a RunError says why."""
    signed = {**checkpoint, HASH: content_hash(checkpoint)}
    try:
        with replacing(path) as file:
            torch.save(signed, file)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        reason = error if isinstance(error, OSError) else (error.__cause__ or error.__context__ or error)
        raise RunError(
            f"{path}: cannot be written ({' '.join(str(reason).split())}); what was saved before is intact: make room, "
            f"then resume={run_of(path)}"
        ) from error


def run_of(path: Path) -> Path:
    """The run folder that a checkpoint lies in."""
    return next((above.parent for above in path.parents if above.name == "checkpoints"), path.parent)


def content_hash(value: Any) -> str:
    """sha256 over the tensors' bytes and the plain data of a checkpoint."""
    digest = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            data = value.detach().cpu().contiguous()
            digest.update(repr((data.dtype, tuple(data.shape))).encode())
            digest.update(data.reshape(-1).view(torch.uint8).numpy().data)
        elif isinstance(value, Mapping):
            digest.update(b"{")
            for key, inner in value.items():
                digest.update(repr(key).encode())
                add(inner)
            digest.update(b"}")
        elif isinstance(value, list | tuple):
            digest.update(b"[")
            for inner in value:
                add(inner)
            digest.update(b"]")
        else:
            digest.update(repr(value).encode() + b",")

    add(value)
    return digest.hexdigest()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU. One that is damaged or would run code on load raises a RunError."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise RunError(f"{path}: there is no such checkpoint") from error
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))  # torch's own words go on to say how to turn the safety off
        what = f" ({named[1]})" if named else ""
        raise RunError(
            f"{path}: refused, for it holds more than tensors and plain data{what}; loading it could run code"
        ) from error
    except Exception as error:  # what the unpickler says of arbitrary bytes is of any kind
        raise RunError(f"{path}: damaged or not a checkpoint ({error})") from error
    signed = content.pop(HASH, None) if isinstance(content, dict) else None
    if signed is None:
        raise RunError(f"{path}: not a checkpoint of a run of ours, it holds no {HASH}")
    if signed != content_hash(content):
        raise RunError(f"{path}: damaged, its content does not match the hash that it holds")
    return content


def check_tokenizer(checkpoint: Any, content_hash: str, path: Path) -> None:
    """Raise a RunError if a checkpoint is not ours or belongs to another tokenizer."""
    facts = checkpoint.get("crosslight") if isinstance(checkpoint, dict) else None
    if facts is None:
        raise RunError(f"{path}: not a checkpoint of a run of ours")
    if facts["tokenizer_sha256"] != content_hash:
        raise RunError(f"{path}: the tokenizer in {run_of(path) / 'tokenizer'} does not match this checkpoint")


def model_weights(checkpoint: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The weights of the model alone, from a checkpoint of the whole task."""
    return {
        key.removeprefix(MODEL_PREFIX): value
        for key, value in checkpoint["state_dict"].items()
        if key.startswith(MODEL_PREFIX)
    }


def file_hash(path: Path) -> str:
    """sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
