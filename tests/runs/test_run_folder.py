"""The run folder: what is refused as one, and writing so that a reader sees all or nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from crosslight.errors import RunError
from crosslight.runs.checkpoints import load_checkpoint, save_checkpoint
from crosslight.runs.folder import RunFolder, link_atomically, update_of, write_atomically


def test_a_folder_without_a_config_is_not_taken_for_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^run=.*/nowhere: there is no such folder$"):
        RunFolder.existing(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"^run=.*: not a run folder, it has no config\.yaml; name a folder like"):
        RunFolder.existing(tmp_path)
    (tmp_path / "config.yaml").write_text("name: x\n")
    assert RunFolder.existing(str(tmp_path)).path == tmp_path
    with pytest.raises(RunError, match="there is no such folder"):
        RunFolder.existing(tmp_path / "config.yaml")


def test_everything_lies_inside_the_folder() -> None:
    places = {key: value for key, value in vars(RunFolder("a/b")).items() if key != "path"}
    assert len(places) >= 6
    assert len(set(places.values())) == len(places)
    assert all(place.is_relative_to("a/b") and place != Path("a/b") for place in places.values())


def test_saved_updates_are_in_the_order_of_numbers_not_of_names(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.updates_saved() == []
    folder.checkpoints.mkdir()
    for update in (10, 9, 100):
        folder.at_update(update).touch()
    folder.best.touch()
    (folder.checkpoints / "update=11.ckpt.tmp123").touch()
    assert [update_of(path) for path in folder.updates_saved()] == [9, 10, 100]


WRITERS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], int]]] = {
    "bytes": (lambda path, n: write_atomically(path, str(n).encode()), lambda path: int(path.read_bytes())),
    "checkpoint": (lambda path, n: save_checkpoint({"n": n}, path), lambda path: load_checkpoint(path)["n"]),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = WRITERS[kind]
    path = tmp_path / "new folder" / "file"
    write(path, 1)
    write(path, 2)
    assert read(path) == 2

    def full(descriptor: int) -> None:
        assert len(list(path.parent.iterdir())) == 2, "the temporary file lies beside the target"
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises((OSError, RunError), match="No space left"):
            write(path, 3)
    assert read(path) == 2
    assert list(path.parent.iterdir()) == [path]
    write(path, 4)
    assert read(path) == 4
    assert list(path.parent.iterdir()) == [path]


def test_the_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("flush"), fsync(descriptor))[1])
    monkeypatch.setattr(Path, "replace", lambda self, target: (done.append("rename"), replace(self, target))[1])
    write_atomically(tmp_path / "a", b"x")
    save_checkpoint({"w": torch.zeros(2)}, tmp_path / "b")
    assert done == ["flush", "rename", "flush"] * 2, "file, name, folder"


def test_a_second_name_replaces_an_old_file_and_may_be_given_twice(tmp_path: Path) -> None:
    """Renaming one name of a file to another of its names leaves both, so the temporary one has to be removed."""
    source, target = tmp_path / "new", tmp_path / "name"
    source.write_text("new")
    target.write_text("old")
    for _ in range(2):
        link_atomically(source, target)
        assert target.samefile(source)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["name", "new"]
    source.unlink()
    assert target.read_text() == "new"
