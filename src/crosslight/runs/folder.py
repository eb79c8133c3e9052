"""What lies where in a run folder. Every path is relative to it, so a run can be moved."""

import errno
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from crosslight.errors import RunError

GROUPS = (
    *("model", "data", "cleaning", "batching", "tokenizer", "task", "optimizer", "scheduler", "decode", "trainer"),
    *("callbacks", "averaging", "logger"),
)


class RunFolder:
    """`outputs/<name>/<time>/`: the config, the record, checkpoints, the tokenizer, hypotheses and logs of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.record = self.path / "record.json"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.checkpoints / "best.ckpt"
        self.kept = self.checkpoints / "best"
        self.tokenizer = self.path / "tokenizer"
        self.hypotheses = self.path / "hypotheses"
        self.exported = self.path / "exported"

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

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Keep the resolved config."""
        write_atomically(self.config, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True).encode())

    def wait_until_seen(self, seconds: float = 120.0) -> None:
        """On another machine than rank 0's: wait until the disk shows what rank 0 has written, config and tokenizer."""
        end = time.monotonic() + seconds
        while not (self.config.is_file() and (self.tokenizer / "tokenizer.json").is_file()):
            if time.monotonic() > end:
                raise RunError(
                    f"{self.path}: rank 0 has written config.yaml and tokenizer/ there, but they cannot be seen "
                    f"from here; a run folder must lie on a disk that all machines share"
                )
            time.sleep(0.2)

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
        return numbered(self.checkpoints)

    def sweep(self) -> None:
        """Remove what killed processes have left half written. Only for who holds the folder's lock."""
        for file in (*self.path.glob("*.tmp[0-9]*"), *self.checkpoints.rglob("*.tmp[0-9]*")):
            file.unlink(missing_ok=True)

    def at_update(self, update: int) -> Path:
        """Where the checkpoint after that update lies."""
        return self.checkpoints / f"update={update}.ckpt"

    def kept_at(self, update: int) -> Path:
        """Where the weights of that update lie while they are among the best."""
        return self.kept / f"update={update}.ckpt"


def numbered(folder: Path) -> list[Path]:
    """The checkpoints there, oldest first; what somebody has put beside them under another name is none."""
    return sorted((p for p in folder.glob("update=*.ckpt") if p.stem[len("update=") :].isdecimal()), key=update_of)


def update_of(path: Path) -> int:
    """The update after which a checkpoint was saved, from its name."""
    return int(path.stem.removeprefix("update="))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the context is left without an error: a reader sees all or nothing.

    It is written beside the target under a temporary name, flushed to the disk and renamed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # the rename, too, survives a power cut
    finally:
        os.close(descriptor)


def link_atomically(source: Path, target: Path) -> None:
    """Give a file a second name in place of what `target` names now; a copy where the disk has no hard links."""
    temporary = target.with_name(f"{target.name}.tmp{os.getpid()}")
    try:
        try:
            os.link(source, temporary)
        except OSError:
            with replacing(target) as file, open(source, "rb") as original:
                shutil.copyfileobj(original, file)
        else:
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)  # renaming one name of a file to another of its names does nothing


def disk_trouble(error: BaseException | None) -> RunError | None:
    """The sentence for an error that a disk caused which is full or cannot be written, at whichever file; else None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
            what = f"{error.filename}: cannot be written" if error.filename else "a file of the run cannot be written"
            return RunError(f"{what} ({error.strerror}); checkpoints that were saved before are intact")
        error = error.__cause__ or error.__context__
    return None


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file by these bytes, whole or not at all."""
    with replacing(path) as file:
        file.write(data)
