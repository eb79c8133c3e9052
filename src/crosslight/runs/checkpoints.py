"""Checkpoint files: plain data, written atomically, read with `weights_only=True`. Needs no Lightning."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import torch

from crosslight.errors import RunError
from crosslight.runs.folder import replacing

MODEL_PREFIX = "model."


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Replace a checkpoint, whole or not at all."""
    with replacing(path) as file:
        torch.save(checkpoint, file)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU. One that is damaged or would run code on load raises a RunError."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise RunError(f"{path}: there is no such checkpoint") from error
    except pickle.UnpicklingError as error:
        raise RunError(
            f"{path}: refused, for it holds more than tensors and plain data (loading it could run code): {error}"
        ) from error
    except Exception as error:  # what the unpickler says of arbitrary bytes is of any kind
        raise RunError(f"{path}: damaged or not a checkpoint ({error})") from error


def check_tokenizer(checkpoint: Any, content_hash: str, path: Path) -> None:
    """Raise a RunError if a checkpoint is not ours or belongs to another tokenizer."""
    facts = checkpoint.get("crosslight") if isinstance(checkpoint, dict) else None
    if facts is None:
        raise RunError(f"{path}: not a checkpoint of a run of ours")
    if facts["tokenizer_sha256"] != content_hash:
        raise RunError(f"{path}: the tokenizer in {path.parents[1] / 'tokenizer'} does not match this checkpoint")


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
