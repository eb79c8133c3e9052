"""What prepared data are kept under: nothing stale, nothing made twice (case C01)."""

import os
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from preparing_texts import BASE, OTHER, Source, Table, built, counted, rows, text
from texts import Text, numbers, recipe

from crosslight.data import preparation
from crosslight.data.cleaning import Cleaning
from crosslight.data.corpus import Pairs, Part
from crosslight.data.encoded import EncodedPairs
from crosslight.data.leaks import LeakGuard
from crosslight.data.preparation import code_version, prepare
from crosslight.data.training_text import TrainingText
from crosslight.errors import DataError
from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.sentencepiece import SentencePieceTokenizer


def test_nothing_is_made_again_when_nothing_has_changed(tmp_path: Path) -> None:
    source, guard = Source(counted(400)), {"test": Pairs("test", ["1 2 0 0"], ["4"])}
    data, report = prepare(text(source), numbers(10), LeakGuard(guard), drop_leaks=True, cache=tmp_path)
    (folder,) = built(tmp_path)
    stamps = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again, same = prepare(text(source), numbers(10), LeakGuard(guard), drop_leaks=True, cache=tmp_path)
    assert source.reads == 1
    assert built(tmp_path) == [folder]
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == stamps
    assert rows(again) == rows(data)
    assert (again.parts, again.content_hash, again.name, same) == (data.parts, data.content_hash, data.name, report)


def changes() -> dict[str, tuple[Any, ...]]:
    """What may differ between two preparations: text, tokenizers, held-out sets, drop_leaks."""
    source, swapped = Source(counted(50)), Source([(t, s) for s, t in counted(50)])
    held, other = ({"test": Pairs("test", ["1 1"], [line])} for line in ("2", "3"))
    small = numbers(12)
    cases: dict[str, tuple[Any, ...]] = {
        "nothing": (text(source), small, None, False),
        "tokenizer": (text(source), numbers(13), None, False),
        "source and target": (text(swapped), small, None, False),
        "one pair fewer": (text(Source(counted(49))), small, None, False),
        "order of pairs": (text(Source(counted(50)[::-1])), small, None, False),
        "two parts": (text(Source(counted(25)), Source(counted(50)[25:])), small, None, False),
        "source language": (text(source, langs=("de", "symbols")), small, None, False),
        "target language": (text(source, langs=("symbols", "de")), small, None, False),
        "held-out sets": (text(source), small, held, False),
        "other held-out sets": (text(source), small, other, False),
        "leaks dropped": (text(source), small, held, True),
    }
    for option, value in OTHER.items():
        cases[option] = text(source, **{option: value}), small, None, False
    return cases


def test_every_change_of_what_decides_gives_another_folder(tmp_path: Path) -> None:
    """Case C01."""
    assert set(OTHER) == {field.name for field in fields(Cleaning)}, "a new option needs another value here"
    for number, (name, case) in enumerate(changes().items(), 1):
        corpus, tokenizers, sets, drop_leaks = case
        prepare(corpus, tokenizers, sets and LeakGuard(sets), drop_leaks=drop_leaks, cache=tmp_path)
        assert len(built(tmp_path)) == number, f"{name}: an earlier folder was taken"


def test_other_code_gives_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(counted(20))
    for version in ("one", "two", "one"):
        monkeypatch.setattr(preparation, "code_version", lambda version=version: version)
        prepare(text(source), numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert source.reads == len(built(tmp_path)) == 2


def test_the_version_of_the_code_is_that_of_every_module_that_reads_or_encodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Path(preparation.__file__).parents[1]
    for folder in ("data", "tokenizers"):
        shutil.copytree(package / folder, tmp_path / folder)
    before = code_version()
    monkeypatch.setattr(preparation, "__file__", str(tmp_path / "data" / "preparation.py"))
    assert code_version() == before, "the place of the package says nothing"
    versions = {before}
    files = [path for folder in ("data", "tokenizers") for path in (tmp_path / folder).glob("*.py")]
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content + f"# {path}".encode())
        versions.add(code_version())
        path.write_bytes(content)
    assert len(versions) == 1 + len(files)
    assert code_version() == before
    (tmp_path / "data" / "another.py").write_text("# new")
    assert code_version() != before


def test_tags_and_names_of_parts_are_part_of_the_text() -> None:
    source, cleaning = Source(counted(3)), Cleaning(**BASE)
    parts = [
        Part("train", source, "de", "en"),
        Part("other", source, "de", "en"),
        Part("train", source, "de", "en", "<2en>"),
        Part("train", source, "de", "en", "<2nl>"),
    ]
    assert len({TrainingText([part], cleaning).fingerprint for part in parts}) == 4


def test_a_tokenizer_trained_anew_at_the_same_path_gives_fresh_ids(tmp_path: Path) -> None:
    """Case C01 with real subwords: 200 pieces, then 300."""
    rng = np.random.default_rng(7)
    words = ["".join(rng.choice([*"abcdefghij"], 6)) for _ in range(400)]
    lines = [" ".join(rng.choice(words, 5)) for _ in range(500)]
    source, path = Source([(line, line.upper()) for line in lines]), tmp_path / "tokenizer.model"
    path.touch()

    def prepared(vocab_size: int) -> EncodedPairs:
        path.write_bytes(subwords(Text(lines, [line.upper() for line in lines]), vocab_size, tmp_path / "models"))
        corpus = text(source, max_len=100, max_ratio=None)
        model = SentencePieceTokenizer(path.read_bytes())
        tokenizers = Tokenizers(model, model, kind="sentencepiece")
        return prepare(corpus, tokenizers, None, drop_leaks=False, cache=tmp_path / "data")[0]

    first, second, again = prepared(200), prepared(300), prepared(200)
    assert max(int(first.source[i].max()) for i in range(len(first))) < 200
    assert max(int(second.source[i].max()) for i in range(len(second))) >= 200
    assert rows(again) == rows(first)
    assert source.reads == len(built(tmp_path / "data")) == 2


def subwords(lines: Text, vocab_size: int, cache: Path) -> bytes:
    small = recipe(cache, vocab_size=vocab_size, normalization="identity", max_lines=10_000)
    return small.fit(lines, []).source.to_bytes()


def test_a_file_of_equal_size_and_time_with_other_content_gives_fresh_ids(tmp_path: Path) -> None:
    file, cache = tmp_path / "pairs.tsv", tmp_path / "cache"
    facts, ids = [], []
    for content in ("1 2\t3\n4\t5\n", "1 2\t3\n4\t6\n"):
        file.write_text(content)
        os.utime(file, ns=(10**18, 10**18))
        facts.append((file.stat().st_size, file.stat().st_mtime_ns))
        data, _ = prepare(text(Table(file)), numbers(10), None, drop_leaks=False, cache=cache)
        ids.append(data.target[1].tolist())
    assert facts[0] == facts[1]
    assert ids == [[8, 2], [9, 2]]


def test_text_that_changes_while_it_is_read_is_not_kept_under_its_old_hash(tmp_path: Path) -> None:
    source = Source(counted(30))
    changing = text(source)
    assert changing.fingerprint
    source.pairs[3] = ("1 1 1", "2 2")
    with pytest.raises(DataError, match="toy: changed while it was read"):
        prepare(changing, numbers(10), None, drop_leaks=False, cache=tmp_path)
    assert built(tmp_path) == []
