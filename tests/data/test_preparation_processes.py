"""Preparing among processes, after a kill, on a full disk, with threads in use (case C03)."""

import errno
import logging
import os
import re
import resource
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from preparing_texts import SPAWN, Source, built, counted, lasting, rows, text
from texts import numbers

from crosslight.data import preparation
from crosslight.data.encoded import EncodedPairs
from crosslight.data.preparation import prepare
from crosslight.errors import CrosslightError, DataError
from crosslight.tokenizers.integers import IntegerTokenizer


class Bytes(IntegerTokenizer):
    """A tokenizer that costs nothing: the bytes of a line."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [list(text.encode()) for text in texts]


def first_and_last(data: EncodedPairs) -> dict[str, Any]:
    return {"length": len(data), "first": data.source[0].tolist(), "last": data.target[len(data) - 1].tolist()}


together: Any = None


def wait_for_all(barrier: Any) -> None:
    global together
    together = barrier


def race(cache: Path) -> dict[str, Any]:
    """One of several processes that start at once: what it got and whether it read the text."""
    source = Source(counted(5_000), 500, meanwhile=lambda number: time.sleep(0.02))
    together.wait(60)
    data, _ = prepare(text(source), numbers(10), None, drop_leaks=False, cache=cache)
    return {**first_and_last(data), "reads": source.reads}


def test_of_four_processes_at_once_one_prepares_and_all_get_the_same(tmp_path: Path) -> None:
    """Case C03, five times on an empty cache."""
    with ProcessPoolExecutor(4, SPAWN, wait_for_all, (SPAWN.Barrier(4),)) as pool:
        for repeat in range(5):
            cache = tmp_path / str(repeat)
            results = [task.result(120) for task in [pool.submit(race, cache) for _ in range(4)]]
            assert sorted(result.pop("reads") for result in results) == [0, 0, 0, 1]
            assert all(result == results[0] for result in results)
            assert results[0] == {"length": 5_000, "first": [3, 3, 3, 3, 2], "last": [12, 4, 2]}
            assert len(built(cache)) == 1


def test_a_waiting_process_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "x.lock"
    for _ in range(2):
        with preparation._lock(path):
            pass
    assert not caplog.records, "nobody else holds it"
    with FileLock(path):
        preparation._lock(path)
    assert [r.getMessage() for r in caplog.records] == ["data: another process is preparing this data; waiting for it"]


def kill_at_chunk(number: int) -> None:
    if number == 40:
        os.kill(os.getpid(), signal.SIGKILL)


def prepare_in_child(cache: Path, meanwhile: Callable[[int], None] | None) -> None:
    prepare(text(Source(counted(500), 10, meanwhile=meanwhile)), numbers(10), None, drop_leaks=False, cache=cache)


def run_in_child(function: Callable[..., None], *arguments: Any, limit: float = 120) -> int | None:
    """The exit code of a process that does nothing else; None if it had not ended in `limit` seconds."""
    child = SPAWN.Process(target=function, args=arguments)
    child.start()
    child.join(limit)
    code = child.exitcode
    if code is None:
        child.kill()
        child.join()
    return code


def test_an_interrupted_preparation_leaves_nothing_that_is_trusted(tmp_path: Path) -> None:
    assert run_in_child(prepare_in_child, tmp_path, kill_at_chunk) == -signal.SIGKILL
    (leftover,) = built(tmp_path)
    assert leftover.name.endswith(f".tmp{leftover.name.rpartition('.tmp')[2]}")
    assert (leftover / "pairs.arrow").stat().st_size > 0, "it was in the middle"
    source = Source(counted(500), 10)
    data, _ = prepare(text(source), numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert source.reads == 1
    assert len(data) == 500
    (folder,) = built(tmp_path)
    assert leftover.name.startswith(folder.name)
    assert sorted(path.name for path in folder.iterdir()) == ["pairs.arrow", "report.json"]


DAMAGE: dict[str, Callable[[Path, Path], Any]] = {
    "pairs cut": lambda pairs, report: os.truncate(pairs, pairs.stat().st_size // 2),
    "pairs empty": lambda pairs, report: os.truncate(pairs, 0),
    "pairs gone": lambda pairs, report: pairs.unlink(),
    "report gone": lambda pairs, report: report.unlink(),
    "report empty": lambda pairs, report: report.write_text(""),
    "report cut": lambda pairs, report: os.truncate(report, report.stat().st_size // 2),
    "report no text": lambda pairs, report: report.write_bytes(b"\xff\x00\xfe"),
    "report another object": lambda pairs, report: report.write_text("{}"),
    "report no object": lambda pairs, report: report.write_text("[]"),
    "folder empty": lambda pairs, report: [path.unlink() for path in (pairs, report)],  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_made_again(damage: str, tmp_path: Path) -> None:
    source = Source(counted(90))
    data, report = prepare(text(source), numbers(10), None, drop_leaks=False, cache=tmp_path)
    before = rows(data)
    del data
    (folder,) = built(tmp_path)
    DAMAGE[damage](folder / "pairs.arrow", folder / "report.json")
    again, same = prepare(text(source), numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert source.reads == 2
    assert rows(again) == before
    assert lasting(same) == lasting(report)
    assert built(tmp_path) == [folder]


def one_sentence(error: CrosslightError, cache: Path, reason: str) -> None:
    assert re.fullmatch(
        rf"cache: training data cannot be kept in {re.escape(str(cache))} \({reason}\); "
        rf"make room or choose another folder with cache=FOLDER",
        str(error),
    ), error


@pytest.mark.parametrize(("place", "reason"), [("file", "File exists"), ("file/below", "Not a directory")])
def test_a_cache_that_is_no_folder_is_one_sentence(place: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataError) as caught:
        prepare(text(Source(counted(3))), numbers(10), None, drop_leaks=False, cache=tmp_path / place)
    one_sentence(caught.value, tmp_path / place, reason)


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __init__(self, *arguments: Any) -> None:
            self.path = Path(arguments[0])

        def __enter__(self) -> Any:
            self.path.write_bytes(b"ARROW1")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(preparation.pa, "OSFile", Full)
    with pytest.raises(DataError) as caught:
        prepare(text(Source(counted(3))), numbers(10), None, drop_leaks=False, cache=tmp_path)
    one_sentence(caught.value, tmp_path, "No space left on device")
    assert not built(tmp_path)


def prepare_with_small_files(cache: Path) -> None:
    """No file may grow above 20 kB here, which the operating system refuses as it does on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    try:
        prepare(text(Source(counted(5_000), 500)), numbers(10), None, drop_leaks=False, cache=cache)
    except DataError as error:
        (cache / "message").write_text(str(error))


def test_a_file_that_cannot_grow_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    assert run_in_child(prepare_with_small_files, tmp_path) == 0
    message = (tmp_path / "message").read_text()
    one_sentence(DataError(message), tmp_path, ".*File too large.*")
    assert not built(tmp_path)


def test_a_text_that_cannot_be_read_is_not_blamed_on_the_cache(tmp_path: Path) -> None:
    def fail(number: int) -> None:
        raise ConnectionError("the hub is not there")

    with pytest.raises(DataError) as caught:
        prepare(text(Source(counted(3), meanwhile=fail)), numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert str(caught.value) == "toy: cannot be read (the hub is not there)"


def test_an_error_in_a_line_comes_out_as_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    pairs = [*counted(50), ("1 x", "2")]
    with pytest.raises(DataError, match=r"^'x' is not a symbol; this run knows the numbers 0 to 9$"):
        prepare(text(Source(pairs, 7)), numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert not built(tmp_path)


def test_the_same_text_from_another_place_is_named_by_that_place(tmp_path: Path) -> None:
    names = []
    for name in ("old.de", "new.de"):
        source = Source(counted(9), name=name)
        data, report = prepare(text(source), numbers(10), None, drop_leaks=False, cache=tmp_path)
        names.append((data.name, report["name"]))
    assert names == [("old.de", "old.de"), ("new.de", "new.de")]


def prepare_after_torch(cache: Path) -> None:
    """Torch's threads exist before ours."""
    import torch

    torch.set_num_threads(2)
    matrix = torch.rand(700, 700)
    for _ in range(3):
        matrix = matrix @ matrix / 700
    prepare(text(Source(counted(5_000), 500)), numbers(10), None, drop_leaks=False, cache=cache)


def test_preparing_after_torch_has_used_its_threads_ends(tmp_path: Path) -> None:
    assert run_in_child(prepare_after_torch, tmp_path, limit=120) == 0
    assert len(built(tmp_path)) == 1


def test_a_folder_below_home_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    prepare(text(Source(counted(3))), numbers(10), None, drop_leaks=False, cache=Path("~/cache"))
    assert len(built(tmp_path / "cache")) == 1
