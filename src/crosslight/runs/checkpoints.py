"""Checkpoint files: plain data, written atomically, read with `weights_only=True`. Needs no Lightning."""

import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

import torch

from crosslight.errors import RunError
from crosslight.runs.folder import flush_folder

MODEL_PREFIX = "model."


def save_checkpoint(checkpoint: dict[str, Any], path: Path) -> None:
    """Write to a temporary file beside the target, flush it to the disk, then rename it over the target."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


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
    except (OSError, RuntimeError, EOFError) as error:
        raise RunError(f"{path}: damaged or not a checkpoint ({error})") from error


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
