"""From which checkpoint a run goes on, and what may have changed in its config since."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosslight.errors import RunError
from crosslight.runs.checkpoints import check_tokenizer, load_checkpoint
from crosslight.runs.folder import RunFolder, update_of

log = logging.getLogger(__name__)

FREE = ("cache", "init_from", "expect", "resume", "unsafe_classes", "trainer.devices", "trainer.num_nodes", "logger")
"""Settings that change no number of a run."""

KEPT = (
    *("model", "tokenizer", "task._target_", "task.objective._target_", "task.no_decay", "optimizer"),
    *("scheduler._target_", "callbacks.best.monitor", "callbacks.best.mode"),
)
"""Settings that a run keeps; those of the batches are compared with the position in training (TranslationData)."""


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint that a run goes on from, as it was read."""

    path: Path
    content: dict[str, Any]

    @property
    def update(self) -> int:
        return self.content["global_step"]

    @property
    def circumstances(self) -> dict[str, Any]:
        return self.content["crosslight"]["circumstances"]


def resume_point(folder: RunFolder, config: Mapping[str, Any], tokenizer_hash: str) -> ResumePoint | None:
    """The newest checkpoint of the folder that is whole; None if it has none at all.

    Names the damaged ones and every setting that has changed. Raises a RunError if none is whole, or if something has
    changed that a run keeps.
    """
    saved = folder.updates_saved()
    for path in reversed(saved):
        try:
            content = load_checkpoint(path)
            if content.get("global_step") != update_of(path):
                raise RunError(f"{path}: not what a run resumes from after that update")
        except RunError as error:
            log.warning("%s; the checkpoint before it is used", error)
            continue
        check_tokenizer(content, tokenizer_hash, path)
        log.info("resuming from %s", path)
        _compare(content["crosslight"]["config"], config)
        return ResumePoint(path, content)
    if saved:
        raise RunError(f"{folder.checkpoints}: none of its {len(saved)} checkpoints can be used; start a new run")
    return None


def check_learnt(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Raise a RunError if the tokenizer in a folder without a checkpoint was learnt with other settings than these.

    A start that ends before its first save leaves its tokenizer there; after that save the checkpoint is compared.
    """
    if folder.updates_saved() or not ((folder.tokenizer / "tokenizer.json").is_file() and folder.config.is_file()):
        return
    old, new = dict(flat(folder.read_config())), dict(flat(config))
    for key in sorted(old.keys() | new.keys()):
        if key.startswith(("tokenizer.", "data._target_", "data.train.")) and old.get(key) != new.get(key):
            raise RunError(
                f"resume: {key} was {old.get(key)} and is now {new.get(key)}, but {folder.tokenizer} was learnt "
                f"before; remove that folder, or start a new run"
            )


def _compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    old, new = dict(flat(before)), dict(flat(now))
    for key in sorted(old.keys() | new.keys()):
        was, value = old.get(key), new.get(key)
        if was == value or key.startswith(FREE):
            continue
        if key.startswith(KEPT) and key != "optimizer.lr" and not key.endswith(("dropout", "layer_drop")):
            raise RunError(f"resume: {key} was {was} and is now {value}; a run keeps its {key.partition('.')[0]}")
        log.info("resume: %s was %s and is now %s", key, was, value)


def flat(node: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    """Every value of a config with its dotted key."""
    found: list[tuple[str, Any]] = []
    for key, value in node.items():
        name = f"{path}.{key}" if path else str(key)
        found += flat(value, name) if isinstance(value, Mapping) else [(name, value)]
    return found
