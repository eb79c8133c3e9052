"""`record.json`: what a run was, what it scored, and what it takes to believe the number."""

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crosslight.errors import RunError
from crosslight.metrics.translation import Score
from crosslight.runs.folder import write_atomically

PACKAGES = ("torch", "lightning", "hydra-core", "omegaconf", "sentencepiece", "datasets", "sacrebleu", "tensorboard")


class Record:
    """A dictionary that is on the disk after every change. Scores lie at `scores.<split>.<test set>.<metric>`.

    `training` is True once all is prepared and the model is about to be trained.
    """

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        self.path, self._writes, self.training = path, writes, False
        self.content: dict[str, Any] = read_record(path) if path.is_file() else {}

    def update(self, **fields: Any) -> None:
        """Set top-level fields and write the file."""
        self.content |= fields
        if self._writes:
            text = json.dumps(self.content, indent=2, ensure_ascii=False) + "\n"
            write_atomically(self.path, text.encode("utf-8", "replace"))

    def add_scores(self, split: str, test_set: str, scores: dict[str, Score]) -> None:
        """Put scores in their place, each with its signature."""
        table = self.content.get("scores", {})
        table.setdefault(split, {})[test_set] = {name: score._asdict() for name, score in sorted(scores.items())}
        self.update(scores=table)


def read_record(path: Path) -> dict[str, Any]:
    """The content of a record; a RunError says what is wrong with the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunError(f"{path}: cannot be read ({error}); without this file the run begins a new one") from error
    if not isinstance(content, dict):
        raise RunError(f"{path}: not the record of a run; without this file the run begins a new one")
    return content


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def environment() -> dict[str, Any]:
    """The command, the versions and the commit that produce a run."""
    return {
        "command": [Path(sys.argv[0]).name, *(argument.removeprefix("++") for argument in sys.argv[1:])],
        "git_commit": git_commit(),
        "versions": {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in PACKAGES},
        "machine": {"platform": platform.platform(), "processor": platform.machine()},
    }


def git_commit() -> str | None:
    """The commit of the source tree, with `+changes` if files differ from it; None outside a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def hyper_parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """What an experimenter varies, as one flat table (`model.d_model`); a class stands there by its bare name.

    Callbacks and loggers change no score and are left out.
    """
    table: dict[str, Any] = {}

    def add(path: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            table[path] = value if isinstance(value, bool | int | float | str) else str(value)
            return
        for key, inner in value.items():
            if key == "_target_":
                table[path] = str(inner).rpartition(".")[2]
            elif not key.startswith("_"):
                add(f"{path}.{key}", inner)

    for key in ("model", "optimizer", "scheduler", "trainer", "data", "tokenizer", "task", "decode", "seed", "name"):
        add(key, config[key])
    return table
