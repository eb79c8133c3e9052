"""Pairs in a user's own files: many files, what cannot be used, what is streamed, and the hash of it (case C01)."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosslight.data import lines as lines_module
from crosslight.data.corpus import CHUNK_ROWS, read_pairs
from crosslight.data.parallel import FilePair, FilePairs
from crosslight.errors import DataError


def files(folder: Path, name: str, source: list[str], target: list[str]) -> FilePair:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    return FilePair(source=str(paths[0]), target=str(paths[1]))


def read(files: FilePair) -> FilePairs:
    return files.read("en", "de")


def test_of_many_files_the_pair_with_unequal_counts_is_named(tmp_path: Path) -> None:
    a, b = files(tmp_path, "a", ["1", "2"], ["1", "2"]), files(tmp_path, "b", ["1", "2"], ["1"])
    c = files(tmp_path, "c", ["1"], ["1", "2"])
    many = FilePair(source=[str(pair.source) for pair in (a, b, c)], target=[str(pair.target) for pair in (a, b, c)])
    for reads in (read(many).count, lambda: list(read(many).chunks())):
        with pytest.raises(DataError, match=r"/b\.en and .*/b\.de: 2 source lines but 1 target lines"):
            reads()


def test_a_final_line_feed_on_one_side_only_makes_no_difference(tmp_path: Path) -> None:
    pair = files(tmp_path, "train", ["a", "b"], ["c", "d"])
    Path(str(pair.target)).write_bytes(b"c\r\nd")
    assert list(read_pairs(read(pair))) == [("a", "c"), ("b", "d")]


def test_unicode_line_breaks_do_not_shift_the_pairs(tmp_path: Path) -> None:
    source = [f"left{sign}right" for sign in "\u2028\u2029\u0085\u000b\u000c"] + ["plain"]
    pairs = files(tmp_path, "train", source, [f"t{i}" for i in range(1, 7)])
    assert list(read_pairs(read(pairs))) == list(zip(source, [f"t{i}" for i in range(1, 7)], strict=True))


def test_many_files_are_read_one_after_the_other_in_sorted_order(tmp_path: Path) -> None:
    for name in ("part-2", "part-10", "part-1"):
        files(tmp_path, name, [f"{name} s{i}" for i in range(3)], [f"{name} t{i}" for i in range(3)])
    expected = [(f"{name} s{i}", f"{name} t{i}") for name in ("part-1", "part-10", "part-2") for i in range(3)]
    globbed = FilePair(source=f"{tmp_path}/part-*.en", target=f"{tmp_path}/part-*.de")
    assert list(read_pairs(read(globbed))) == expected
    assert read(globbed).count() == 9
    listed = FilePair(source=[f"{tmp_path}/part-2.en", f"{tmp_path}/part-1*.en"], target=f"{tmp_path}/part-*.de")
    assert next(iter(read_pairs(read(listed)))) == ("part-2 s0", "part-1 t0"), "a list keeps its order"


def test_a_name_with_brackets_that_exists_is_no_pattern(tmp_path: Path) -> None:
    pair = files(tmp_path, "train[1]", ["a"], ["b"])
    assert list(read_pairs(read(pair))) == [("a", "b")]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("{0}/x-*.en", "{0}/train.de", r"x-\*\.en: no file matches this pattern"),
        ("{0}/nowhere.en", "{0}/train.de", r"nowhere\.en: cannot be read \(No such file or directory\)"),
        ("{0}", "{0}/train.de", r": is a folder; name its files, for example .*\*\.tsv"),
        ("{0}/pipe", "{0}/train.de", r"pipe: is no regular file; text is read more than once, so a pipe will not do"),
        ("{0}/*.en", ["{0}/train.de"] * 2, r"1 source files but 2 target files; file k of one side must translate"),
        ("{0}/zero", "{0}/zero", r"zero and .*/zero: no sentence pairs in it; leave it out"),
        ([], [], r"an empty list of files"),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path: Path, source: Any, target: Any, message: str) -> None:
    files(tmp_path, "train", ["a"], ["b"])
    (tmp_path / "zero").touch()
    os.mkfifo(tmp_path / "pipe")

    def placed(value: Any) -> Any:
        return value.format(tmp_path) if isinstance(value, str) else [path.format(tmp_path) for path in value]

    pair = FilePair(source=placed(source), target=placed(target))
    for reads in (lambda: read(pair).count(), lambda: list(read(pair).chunks())):
        with pytest.raises(DataError, match=message):
            reads()


@pytest.mark.parametrize("block_bytes", [64, 1000])
def test_sides_with_lines_of_other_lengths_stay_aligned_over_all_blocks(
    tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", block_bytes)
    rng = np.random.default_rng(3)
    source = [f"{i} " + "ä" * rng.integers(0, 9) for i in range(2000)]
    target = [f"{i} " + "€\u2028" * rng.integers(0, 40) for i in range(2000)]
    pairs = files(tmp_path, "train", source, target)
    Path(str(pairs.target)).write_bytes("\r\n".join(target).encode())
    assert list(read_pairs(read(pairs))) == list(zip(source, target, strict=True))
    assert read(pairs).count() == 2000


def test_the_first_chunk_comes_before_the_end_of_the_files_is_seen(tmp_path: Path) -> None:
    pair = files(tmp_path, "train", ["a" * 60] * 40_000, ["b" * 70] * 40_000)
    with Path(str(pair.target)).open("ab") as file:
        file.write(b"\xff\n")
    chunks = read(pair).chunks()
    assert next(chunks).to_pylist()[0] == {"source": "a" * 60, "target": "b" * 70}
    with pytest.raises(DataError, match=r"train\.de, line 40001: byte 0xff"):
        list(chunks)


def test_short_lines_do_not_make_large_chunks(tmp_path: Path) -> None:
    sizes = [len(chunk) for chunk in read(files(tmp_path, "train", ["a"] * 40_000, ["b"] * 40_000)).chunks()]
    assert sum(sizes) == 40_000
    assert max(sizes) <= CHUNK_ROWS


def test_a_changed_file_of_equal_size_and_time_stamp_has_another_fingerprint(tmp_path: Path) -> None:
    pair = files(tmp_path, "train", ["one", "two"], ["eins", "zwei"])
    before, path = read(pair).fingerprint(), Path(str(pair.target))
    stat = path.stat()
    path.write_text("eins\nzwEi\n")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    assert read(pair).fingerprint() != before


def test_a_fingerprint_follows_the_text_and_not_the_path(tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    one, moved = (files(folder, "a", ["1", "2"], ["3", "4"]) for folder in (tmp_path, tmp_path / "moved"))
    assert read(one).fingerprint() == read(moved).fingerprint()
    shifted = files(tmp_path, "shifted", ["1"], ["2\n3\n4"])
    swapped = FilePair(source=one.target, target=one.source)
    twice = FilePair(source=[str(one.source)] * 2, target=[str(one.target)] * 2)
    hashes = {read(pair).fingerprint() for pair in (one, shifted, swapped, twice)}
    assert len(hashes) == 4


def test_a_fingerprint_follows_the_fields_and_the_direction(tmp_path: Path) -> None:
    for name in ("a.tsv", "a.csv"):
        (tmp_path / name).write_text("en\tde\tfr\n1\t2\t3\n")
    table = str(tmp_path / "a.tsv")
    hashes = {
        FilePair(pairs=table).read("en", "de").fingerprint(),
        FilePair(pairs=table).read("de", "en").fingerprint(),
        FilePair(pairs=table, target_field="fr").read("en", "de").fingerprint(),
        FilePair(pairs=table, source_field=0, target_field=1).read("en", "de").fingerprint(),
        FilePair(pairs=table.replace("tsv", "csv")).read("en", "de").fingerprint(),
    }
    assert len(hashes) == 5
