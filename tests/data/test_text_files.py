"""A user's own files: counts that must agree (case A12), held-out pairs, test sets, the command line."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf

from crosslight.config.check import check_config
from crosslight.config.compose import compose
from crosslight.data.corpus import Pairs, PairSource, read_pairs, row_numbers
from crosslight.data.lines import read_lines
from crosslight.data.parallel import FilePair, FilePairs, Selected, TextFiles
from crosslight.errors import ConfigError, DataError

NO_FILES = FilePair(source=None, target=None)


def files(folder: Path, name: str, source: list[str], target: list[str]) -> FilePair:
    paths = folder / f"{name}.en", folder / f"{name}.de"
    for path, lines in zip(paths, (source, target), strict=True):
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    return FilePair(source=str(paths[0]), target=str(paths[1]))


def corpus(
    train: FilePair,
    *,
    validation: FilePair = NO_FILES,
    test: FilePair = NO_FILES,
    tests: dict[str, Any] | None = None,
    held_out: int = 7,
    seed: int = 1,
) -> TextFiles:
    return TextFiles(
        source_lang="en",
        target_lang="de",
        leaks="warn",
        train=train,
        validation=validation,
        test=test,
        tests=tests or {},
        held_out=held_out,
        seed=seed,
    )


def read(files: FilePair) -> FilePairs:
    return files.read("en", "de")


def numbered(folder: Path, count: int) -> FilePair:
    return files(folder, "train", [f"s{i}" for i in range(count)], [f"t{i}" for i in range(count)])


@pytest.mark.parametrize("blank", [1, 5])
def test_unequal_line_counts_are_refused_with_both_counts_and_both_paths(tmp_path: Path, blank: int) -> None:
    target = [f"t{i}" for i in range(5)]
    target.insert(blank, "")
    pair = files(tmp_path, "train", [f"s{i}" for i in range(5)], target)
    validation = files(tmp_path, "val", ["x"], ["y"])
    for reads in (
        corpus(pair).training_pairs,
        corpus(pair, validation=validation).training_pairs,
        lambda: list(read(pair).chunks()),
        corpus(validation, validation=pair).validation_pairs,
    ):
        with pytest.raises(DataError) as error:
            reads()
        message = str(error.value)
        assert f"{tmp_path}/train.en" in message
        assert f"{tmp_path}/train.de" in message
        assert "5 source lines but 6 target lines" in message


@pytest.mark.parametrize(("held_out", "size"), [(7, 7), (50, 10), (0, 0)])
def test_held_out_pairs_leave_the_training_set(tmp_path: Path, held_out: int, size: int) -> None:
    text = corpus(numbered(tmp_path, 100), held_out=held_out)
    train, validation = read_pairs(text.training_pairs()), text.validation_pairs()
    assert (len(train), len(validation)) == (100 - size, size)
    assert sorted(int(s[1:]) for s in [*train.source, *validation.source]) == list(range(100))
    assert [int(s[1:]) for s in train.source] == sorted(int(s[1:]) for s in train.source), "the order stays"
    assert all(s[1:] == t[1:] for pairs in (train, validation) for s, t in pairs)
    assert text.test_pairs() == {}


def test_which_pairs_are_held_out_depends_on_the_seed_alone(tmp_path: Path) -> None:
    train = numbered(tmp_path, 100)
    first, again, other = (corpus(train, seed=seed).validation_pairs().source for seed in (1, 1, 2))
    assert first == again != other
    assert first != [f"s{i}" for i in range(7)], "the head of a file is no random sample"


def test_validation_files_leave_the_training_set_whole(tmp_path: Path) -> None:
    text = corpus(numbered(tmp_path, 30), validation=files(tmp_path, "val", ["x", ""], ["y", ""]))
    assert len(read_pairs(text.training_pairs())) == 30
    assert list(text.validation_pairs()) == [("x", "y"), ("", "")], "nothing is filtered from validation"


def test_half_a_pair_of_files_and_no_training_files_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"source=a\.en and target=None"):
        FilePair(source="a.en", target=None)
    with pytest.raises(ConfigError, match=r"data\.train\.source=FILE"):
        corpus(NO_FILES).training_pairs()


class InChunks:
    """Numbered pairs in chunks of given sizes."""

    name = "numbers"

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def fingerprint(self) -> str:
        return str(sum(self.sizes))

    def chunks(self) -> Iterator[pa.RecordBatch]:
        start = 0
        for size in self.sizes:
            texts = [str(i) for i in range(start, start + size)]
            yield pa.record_batch([texts, texts], names=["source", "target"])
            start += size


@pytest.mark.parametrize("sizes", [[20], [1] * 20, [0, 7, 0, 12, 1], [3, 17]])
@pytest.mark.parametrize("rows", [[], [0], [19], [6, 7], [2, 3, 5, 8, 13], list(range(20))])
def test_selected_rows_and_the_others_are_the_whole(sizes: list[int], rows: list[int]) -> None:
    source = InChunks(sizes)
    kept, left = (Selected("part", source, np.array(rows, np.int64), keep=keep) for keep in (True, False))
    assert isinstance(kept, PairSource)
    assert list(read_pairs(kept).source) == [str(i) for i in rows]
    assert list(read_pairs(left).target) == [str(i) for i in range(20) if i not in rows]
    assert len({source.fingerprint(), kept.fingerprint(), left.fingerprint()}) == 3
    assert kept.fingerprint() != Selected("part", source, np.array([1, 4]), keep=True).fingerprint()
    assert kept.fingerprint() == Selected("part", InChunks([20]), np.array(rows, np.int64), keep=True).fingerprint()


def test_a_source_that_became_shorter_is_noticed() -> None:
    with pytest.raises(DataError, match="numbers: has 3 pairs, fewer than before"):
        read_pairs(Selected("part", InChunks([3]), np.array([3]), keep=True))


def test_test_sets_have_their_names(tmp_path: Path) -> None:
    (tmp_path / "news.tsv").write_text("a\tb\n")
    test = files(tmp_path, "test", ["x", ""], ["y", "z"])
    text = corpus(numbered(tmp_path, 20), test=test, tests={"news": {"pairs": f"{tmp_path}/news.tsv"}})
    assert {name: list(pairs) for name, pairs in text.test_pairs().items()} == {
        "test": [("x", "y"), ("", "z")],
        "news": [("a", "b")],
    }


@pytest.mark.parametrize(
    ("tests", "message"),
    [
        ({"news": {"sauce": "a"}}, r"data\.tests\.news\.sauce: there is no such setting; it has pairs, source"),
        ({"news": {"source": "a"}}, r"source=a and target=None; give both files or neither"),
        ({"news": ["a.tsv"]}, r"data\.tests\.news: \['a\.tsv'\] is no pair of files"),
        ({"test": {"pairs": "a.tsv"}}, r"data\.tests\.test: data\.test is also given"),
    ],
)
def test_a_wrong_test_set_is_refused_by_name(tests: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        corpus(NO_FILES, test=FilePair(pairs="x.tsv"), tests=tests)


@pytest.mark.parametrize(
    "arguments",
    [
        ["data.train.source=a.en", "data.train.target=a.de"],
        ["data.train.source=[a.en,b.en]", "data.train.target=[a.de,b.de]"],
        ["data.train.source=?.en", "data.train.target=?.de"],
        ["data.train.pairs=*.tsv.gz"],
        ["data.train.pairs=[a.tsv.gz,b.tsv.gz]", "data.train.source_field=0", "data.train.target_field=1"],
    ],
)
def test_the_command_line_reaches_every_kind_of_files(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        files(tmp_path, name, [f"s{name}{i}" for i in range(30)], [f"t{name}{i}" for i in range(30)])
        sides = [read_lines(tmp_path / f"{name}.{lang}") for lang in ("en", "de")]
        table = "".join(f"{s}\t{t}\n" for s, t in zip(*sides, strict=True))
        (tmp_path / f"{name}.tsv.gz").write_bytes(gzip.compress(table.encode()))
    config = compose(["data=text_files", *arguments, "data.tests.more.pairs=b.tsv.gz"])
    node = OmegaConf.to_container(config.data)
    assert isinstance(node, dict)
    check_config({"data": node})
    text = instantiate(node, _convert_="all")
    assert isinstance(text, TextFiles)
    pairs = [*read_pairs(text.training_pairs()), *text.validation_pairs()]
    wanted = {(f"s{name}{i}", f"t{name}{i}") for name in ("a", "b") for i in range(30)}
    one_file = arguments[0] == "data.train.source=a.en"
    assert set(pairs) == {pair for pair in wanted if pair[0][1] == "a" or not one_file}
    assert len(pairs) == (30 if one_file else 60)
    assert list(text.test_pairs()) == ["more"]


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


@pytest.mark.parametrize("keep", [True, False])
def test_a_selection_knows_the_lines_of_the_whole(keep: bool) -> None:
    whole = Pairs("whole", [str(i) for i in range(50)], [str(i) for i in range(50)])
    for rows in ([], [0], [49], [0, 1, 2, 7, 30, 31, 49], list(range(50))):
        part = Selected("part", whole, np.array(rows, np.int64), keep)
        lines = [text for chunk in part.chunks() for text in chunk.column("source").to_pylist()]
        assert [str(row) for row in part.original_rows(np.arange(len(lines)))] == lines
        assert row_numbers(part, 1, max(0, len(lines) - 1)).tolist() == [int(line) for line in lines[1:]]
