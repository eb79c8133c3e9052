"""What lies where in a run folder. Every path is relative to it, so a run can be moved."""

import os
from pathlib import Path
from typing import Any

import yaml

from crosslight.errors import RunError

GROUPS = ("model", "data", "tokenizer", "task", "optimizer", "scheduler", "decode", "trainer", "callbacks", "logger")


class RunFolder:
    """`outputs/<name>/<time>/`: the config, the record, checkpoints, the tokenizer, hypotheses and logs of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.record = self.path / "record.json"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"
        self.tokenizer = self.path / "tokenizer"
        self.hypotheses = self.path / "hypotheses"
        self.tensorboard = self.path / "tensorboard"

    @classmethod
    def existing(cls, path: str | Path, key: str = "run") -> "RunFolder":
        """The folder of a run that has started; a RunError says what is missing. `key` is the setting that named it."""
        folder = cls(path)
        if not folder.path.is_dir():
            raise RunError(f"{key}={path}: there is no such folder")
        if not folder.config.is_file():
            raise RunError(
                f"{key}={path}: not a run folder, it has no config.yaml; name a folder like outputs/copy/<time>"
            )
        return folder

    def read_config(self) -> dict[str, Any]:
        """The resolved config; a RunError says what is wrong with the file."""
        try:
            content = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise RunError(f"{self.config}: cannot be read ({' '.join(str(error).split())})") from error
        missing = [group for group in GROUPS if not isinstance(content, dict) or group not in content]
        if missing:
            raise RunError(f"{self.config}: not the config of a run; it has no {', '.join(missing)}")
        return content

    def updates_saved(self) -> list[Path]:
        """The checkpoints that a run can resume from, oldest first."""
        return sorted(self.checkpoints.glob("update=*.ckpt"), key=update_of)

    def at_update(self, update: int) -> Path:
        """Where the checkpoint after that update lies."""
        return self.checkpoints / f"update={update}.ckpt"


def update_of(path: Path) -> int:
    """The update after which a checkpoint was saved, from its name."""
    return int(path.stem.removeprefix("update="))


def write_atomically(path: Path, data: bytes) -> None:
    """Write a temporary file beside the target, flush it to the disk, rename it: a reader sees all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
