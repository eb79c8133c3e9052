"""Whole runs of seconds in this process, with something happening at a chosen moment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from commands import SMALL
from lightning.pytorch.callbacks import Callback

from crosslight import build
from crosslight.app import train
from crosslight.build import plain
from crosslight.config.compose import compose
from crosslight.runs.folder import RunFolder
from crosslight.runs.record import Record, read_record

TINY = [
    *SMALL,
    "trainer=cpu",
    "trainer.threads=1",
    "trainer.max_steps=24",
    "trainer.val_check_interval=4",
    "model.d_model=32",
    "model.d_ff=32",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "model.dropout=0.1",
    "batching.eval_max_tokens=60",
    "callbacks=[saver,best,progress,ema]",
    "callbacks.saver.every_n_updates=5",
    "callbacks.progress.seconds=0.0",
    "logger=[]",
]
"""Six updates an epoch; a validation of several batches after every fourth, so at the end of each second epoch."""


def run(folder: Path, *overrides: str) -> Record:
    """Train, or go on training, in a folder, in this process."""
    folder.mkdir(exist_ok=True, parents=True)
    config = plain(compose([*TINY, f"cache={folder.parent / 'cache'}", *overrides]))
    return train(config, RunFolder(folder))


class At(Callback):
    """Does something once, in a hook, when `update` updates are done."""

    def __init__(self, hook: str, update: int, action: Callable[..., Any]) -> None:
        self.update, self.action, self.done = update, action, False
        setattr(self, hook, self._act)

    def _act(self, trainer: Any, module: Any, *arguments: Any) -> None:
        if trainer.global_step == self.update and not self.done:
            self.done = True
            self.action(trainer, module, *arguments)


@contextmanager
def added(*callbacks: Callback) -> Iterator[None]:
    """The runs in this context have these callbacks too, before the others."""
    original = build.build_callbacks

    def more(*arguments: Any) -> list[Any]:
        return [*callbacks, *original(*arguments)]

    with mock.patch.object(build, "build_callbacks", more):
        yield


def checkpoint(folder: Path, update: int) -> dict[str, Any]:
    """What a run resumes from."""
    return torch.load(folder / "checkpoints" / f"update={update}.ckpt", weights_only=True)


def assert_same(one: Any, other: Any, path: str = "") -> None:
    """Every tensor and number is the same to the last bit."""
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for number, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{path}[{number}]")
    else:
        assert one == other, path


def assert_same_run(one: Path, other: Path, update: int = 24) -> None:
    """Weights, optimizer, position, what callbacks keep (clocks aside), all scores, and which files there are."""
    first, second = checkpoint(one, update), checkpoint(other, update)
    for content in (first, second):
        for key in list(content["callbacks"]):
            content["callbacks"][key].pop("training_seconds", None)
            content["callbacks"][key].pop("validation_due", None)
    for key in ("state_dict", "optimizer_states", "TranslationData", "callbacks", "global_step"):
        assert_same(first[key], second[key], key)
    records = [read_record(folder / "record.json") for folder in (one, other)]
    for key in ("scores", "averaging"):
        assert_same(records[0][key], records[1][key], key)
    files = [sorted(path.name for path in (folder / "checkpoints").rglob("*")) for folder in (one, other)]
    assert files[0] == files[1]
