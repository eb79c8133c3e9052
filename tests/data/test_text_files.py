"""A user's own files: counts that must agree (case A12), held-out pairs, the hash of a set."""

from pathlib import Path

import pytest

from crosslight.data.corpus import Pairs
from crosslight.data.parallel import FilePair, TextFiles
from crosslight.errors import ConfigError, DataError

NO_FILES = FilePair(source=None, target=None)


def files(folder: Path, name: str, source: list[str], target: list[str]) -> FilePair:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    return FilePair(source=str(paths[0]), target=str(paths[1]))


def corpus(train: FilePair, *, validation: FilePair = NO_FILES, held_out: int = 7, seed: int = 1) -> TextFiles:
    return TextFiles(
        source_lang="en",
        target_lang="de",
        max_tokens=100,
        eval_max_tokens=100,
        max_len=20,
        num_workers=0,
        train=train,
        validation=validation,
        test=NO_FILES,
        held_out=held_out,
        seed=seed,
    )


def numbered(folder: Path, count: int) -> FilePair:
    return files(folder, "train", [f"s{i}" for i in range(count)], [f"t{i}" for i in range(count)])


@pytest.mark.parametrize("blank", [1, 5])
def test_unequal_line_counts_are_refused_with_both_counts_and_both_paths(tmp_path: Path, blank: int) -> None:
    target = [f"t{i}" for i in range(5)]
    target.insert(blank, "")
    pair = files(tmp_path, "train", [f"s{i}" for i in range(5)], target)
    with pytest.raises(DataError) as error:
        corpus(pair).training_pairs()
    message = str(error.value)
    assert f"{tmp_path}/train.en" in message
    assert f"{tmp_path}/train.de" in message
    assert "5 source lines but 6 target lines" in message


def test_a_final_line_feed_on_one_side_only_makes_no_difference(tmp_path: Path) -> None:
    pair = files(tmp_path, "train", ["a", "b"], ["c", "d"])
    Path(str(pair.target)).write_bytes(b"c\r\nd")
    assert list(pair.read()) == [("a", "c"), ("b", "d")]


def test_unicode_line_breaks_do_not_shift_the_pairs(tmp_path: Path) -> None:
    source = [f"left{sign}right" for sign in "\u2028\u2029\u0085\u000b\u000c"] + ["plain"]
    pairs = files(tmp_path, "train", source, [f"t{i}" for i in range(1, 7)]).read()
    assert list(pairs) == list(zip(source, [f"t{i}" for i in range(1, 7)], strict=True))


@pytest.mark.parametrize(("held_out", "size"), [(7, 7), (50, 10), (0, 0)])
def test_held_out_pairs_leave_the_training_set(tmp_path: Path, held_out: int, size: int) -> None:
    text = corpus(numbered(tmp_path, 100), held_out=held_out)
    train, validation = text.training_pairs(), text.validation_pairs()
    assert (len(train), len(validation)) == (100 - size, size)
    assert sorted(int(s[1:]) for s in train.source + validation.source) == list(range(100))
    assert all(s[1:] == t[1:] for pairs in (train, validation) for s, t in pairs)
    assert text.test_pairs() == {}


def test_which_pairs_are_held_out_depends_on_the_seed_alone(tmp_path: Path) -> None:
    train = numbered(tmp_path, 100)
    first, again, other = (corpus(train, seed=seed).validation_pairs().source for seed in (1, 1, 2))
    assert first == again != other
    assert first != [f"s{i}" for i in range(7)], "the head of a file is no random sample"


def test_validation_files_leave_the_training_set_whole(tmp_path: Path) -> None:
    text = corpus(numbered(tmp_path, 30), validation=files(tmp_path, "val", ["x", ""], ["y", ""]))
    assert len(text.training_pairs()) == 30
    assert list(text.validation_pairs()) == [("x", "y"), ("", "")], "nothing is filtered from validation"


def test_half_a_pair_of_files_and_no_training_files_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"source=a\.en and target=None"):
        FilePair(source="a.en", target=None)
    with pytest.raises(ConfigError, match=r"data\.train\.source=FILE"):
        corpus(NO_FILES).training_pairs()


def test_the_hash_of_a_set_changes_with_every_line_of_either_side() -> None:
    def hashed(source: list[str], target: list[str]) -> str:
        return Pairs("any name", source, target).content_hash

    variants = [
        hashed(["a", "b"], ["c", "d"]),
        hashed(["b", "a"], ["c", "d"]),
        hashed(["a", "b"], ["c", "D"]),
        hashed(["c", "d"], ["a", "b"]),
        hashed(["a"], ["c"]),
    ]
    assert len(set(variants)) == len(variants)
    assert Pairs("another name", ["a", "b"], ["c", "d"]).content_hash == variants[0]
