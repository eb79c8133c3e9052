"""Checkpoint files: what goes in comes out; what is damaged, foreign or would run code is refused."""

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from crosslight.errors import RunError
from crosslight.runs.checkpoints import file_hash, load_checkpoint, model_weights, save_checkpoint
from crosslight.runs.strategies import AtomicCheckpoints

CONTENT: dict[str, Any] = {
    "state_dict": {
        "model.a": torch.arange(6.0).view(2, 3),
        "model.b.c": torch.ones(2, dtype=torch.bfloat16),
        "loss.x": 1,
    },
    "optimizer_states": [
        {"state": {0: {"step": torch.tensor(3)}}, "param_groups": [{"betas": (0.9, 0.98), "lr": 1e-3}]}
    ],
    "crosslight": {"config": {"model": {"d_model": 4, "tie": None, "list": ["ä", 1.5, True]}}},
    "global_step": 7,
}


def test_a_checkpoint_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.ckpt"
    save_checkpoint(CONTENT, path)
    loaded = load_checkpoint(path)
    torch.testing.assert_close(loaded["state_dict"], CONTENT["state_dict"], rtol=0, atol=0)
    assert {key: loaded[key] for key in ("crosslight", "global_step")} == {
        key: CONTENT[key] for key in ("crosslight", "global_step")
    }
    assert loaded["optimizer_states"] == CONTENT["optimizer_states"]
    assert torch.load(path, weights_only=True)["global_step"] == 7
    assert file_hash(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_shared_weights_are_stored_once_and_stay_shared(tmp_path: Path) -> None:
    table = torch.zeros(50, 40)
    save_checkpoint({"a": table, "b": table}, tmp_path / "tied")
    save_checkpoint({"a": table, "b": table.clone()}, tmp_path / "two")
    loaded = load_checkpoint(tmp_path / "tied")
    loaded["a"][1, 2] = 5
    assert loaded["b"][1, 2] == 5
    assert (tmp_path / "tied").stat().st_size + 7000 < (tmp_path / "two").stat().st_size


def test_the_weights_of_the_model_are_told_from_the_rest_of_the_task() -> None:
    assert model_weights(CONTENT).keys() == {"a", "b.c"}
    assert model_weights(CONTENT)["a"] is CONTENT["state_dict"]["model.a"]


class Evil:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def _zipped(content: Any, path: Path) -> None:
    torch.save(content, path)


def _old_format(content: Any, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def _pickled(content: Any, path: Path) -> None:
    path.write_bytes(pickle.dumps(content))


@pytest.mark.parametrize("write", [_zipped, _old_format, _pickled])
@pytest.mark.parametrize("load", [load_checkpoint, AtomicCheckpoints().load_checkpoint])
def test_a_checkpoint_that_would_run_code_is_refused_and_does_not_run_it(
    write: Callable[[Any, Path], None], load: Callable[[Path], Any], tmp_path: Path
) -> None:
    marker, path = tmp_path / "marker", tmp_path / "evil.ckpt"
    write({**CONTENT, "extra": Evil(marker)}, path)
    with pytest.raises(RunError, match=rf"^{path}: refused, for it holds more than tensors and plain data.*run code$"):
        load(path)
    assert not marker.exists()
    if write is not _pickled:
        torch.load(path, weights_only=False)
        assert marker.exists(), "the trap works"


def test_settings_that_are_not_plain_data_are_refused(tmp_path: Path) -> None:
    torch.save({"config": OmegaConf.create({"a": 1})}, tmp_path / "a.ckpt")
    with pytest.raises(RunError, match=r"refused, .* \(omegaconf\S+\); loading it could run code$"):
        load_checkpoint(tmp_path / "a.ckpt")


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("write", [_zipped, _old_format])
def test_a_truncated_checkpoint_is_named(part: float, write: Callable[[Any, Path], None], tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    write(CONTENT, path)
    os.truncate(path, int(part * path.stat().st_size))
    with pytest.raises(RunError, match=rf"^{path}: "):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "data", [b"hello", b"\x80", b"\x00" * 99, b"PK\x03\x04", b"version https://git-lfs.github.com\n"]
)
def test_what_is_no_checkpoint_at_all_is_named(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.ckpt").write_bytes(data)
    with pytest.raises(RunError, match=rf"^{tmp_path}/a\.ckpt: "):
        load_checkpoint(tmp_path / "a.ckpt")


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"a\.ckpt: there is no such checkpoint$"):
        load_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(RunError, match="damaged or not a checkpoint"):
        load_checkpoint(tmp_path)


def test_a_checkpoint_is_removed_once(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    AtomicCheckpoints().save_checkpoint(CONTENT, path)
    AtomicCheckpoints().remove_checkpoint(path)
    AtomicCheckpoints().remove_checkpoint(path)
    assert not path.exists()
