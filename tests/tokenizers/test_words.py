"""Encoding word by word gives the library's own ids, whatever the text, the normalisation and the pieces."""

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece

from crosslight.tokenizers import words
from crosslight.tokenizers.sentencepiece import SentencePieceTokenizer

PLAIN = ["the cat sat on the mat", "über die Straße läuft ein Hund", "l'été est là, n'est-ce pas?", "一 二 三 x²"] * 9
NASTY = [
    *" \u00a0\u2003\u3000\t\u200b\u200d\ufeff\u2028\u0085\u2581\u2585",
    *"\u0301\u0308\u0327\u05b0\u093f\u3099\u0345\u1ab0",  # marks that combine with what stands before
    *"ﬁ½①Ａŀ︰¨´ａ\u1e9bΣςİı",
    *"\x00\x01\x1f\x7f\x96\ue000\U0001f600\u263a\ufe0f",
    *"abcdefß漢字가ㄱ\u1100\u1161.,;-'<>/",
    *("<s>", "</s>", "<num>", " the ", "cat", "über"),
]


def tokenizer(**changed: Any) -> SentencePieceTokenizer:
    model = io.BytesIO()
    options = {"vocab_size": 130, "model_type": "bpe", "normalization_rule_name": "nmt_nfkc", **changed}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(PLAIN),
        model_writer=model,
        **{"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2, "hard_vocab_limit": False, **options},
    )
    return SentencePieceTokenizer(model.getvalue())


def many(tokenizer: SentencePieceTokenizer, lines: Sequence[str]) -> list[list[int]]:
    ids = tokenizer.encode_many(pa.array(lines, pa.string()))
    assert ids.values.dtype == ids.lengths.dtype == np.int32
    return [part.tolist() for part in np.split(ids.values, np.cumsum(ids.lengths))[:-1]]


def nasty(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["".join(rng.choice(NASTY, rng.integers(0, 25))) for _ in range(count)]


MODELS: dict[str, dict[str, Any]] = {
    "usual": {},
    "identity": {"normalization_rule_name": "identity"},
    "nfkc": {"normalization_rule_name": "nfkc"},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf"},
    "bytes": {"byte_fallback": True, "vocab_size": 400},
    "symbols": {"user_defined_symbols": ["<num>"], "control_symbols": ["<2de>"]},
    "few characters": {"character_coverage": 0.98, "vocab_size": 60},
}


@pytest.mark.parametrize("name", MODELS)
def test_nasty_lines_get_the_ids_of_the_library(name: str) -> None:
    model = tokenizer(**MODELS[name])
    assert model._words is not None, "else nothing is tested here"
    lines = [*nasty(4000, seed=1), "", " ", *PLAIN, "  two  spaces  ", "\u0301first", "x \u0301second \u0301"]
    assert many(model, lines) == model.encode_batch(lines)
    assert many(model, lines) == model.encode_batch(lines), "from what is known now"


def test_marks_that_combine_with_a_space_are_met_at_all() -> None:
    model = tokenizer()
    many(model, ["a \u0301b", "c"])
    assert model._words is not None
    words = model._words
    assert words._table.strange[words._place[" \u0301b"]]
    assert words._table.strange.sum() == 1


@pytest.mark.shared
def test_real_text_gets_the_ids_of_the_library(shared: Path) -> None:
    model = tokenizer()
    files = [shared / "data/multi30k/val.de", *sorted((shared / "data/ntrex128").glob("*.txt"))]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").split("\n")]
    assert many(model, lines) == model.encode_batch(lines)


def test_slices_and_empty_arrays_are_what_they_show() -> None:
    model = tokenizer()
    lines = pa.array(["a cat", "", "the mat", "on the", ""])
    for start in range(5):
        for stop in range(start, 6):
            found = model.encode_many(lines[start:stop])
            expected = model.encode_batch(lines.to_pylist()[start:stop])
            assert found.lengths.tolist() == [len(ids) for ids in expected]
            assert found.values.tolist() == [i for ids in expected for i in ids]


def test_threads_at_once_get_the_same() -> None:
    model = tokenizer()
    parts = [nasty(300, seed) for seed in range(12)]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(lambda lines: many(model, lines), parts)) == [model.encode_batch(lines) for lines in parts]


def test_forgetting_the_words_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tokenizer()
    monkeypatch.setattr(words, "MAX_WORDS", 40)
    for seed in range(6):
        lines = [*nasty(20, seed), *PLAIN[:4]]
        assert many(model, lines) == model.encode_batch(lines)


@pytest.mark.parametrize(
    "changed",
    [
        {"model_type": "unigram", "vocab_size": 60},
        {"treat_whitespace_as_suffix": True},
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"split_by_whitespace": False, "vocab_size": 150},
        {"user_defined_symbols": ["two words"]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_model_whose_words_depend_on_each_other_goes_through_the_library(changed: dict[str, Any]) -> None:
    model = tokenizer(**changed)
    assert model._words is None
    lines = [*nasty(500, seed=2), *PLAIN, "the two words"]
    assert many(model, lines) == model.encode_batch(lines)


def test_text_without_spaces_is_not_kept_in_memory() -> None:
    model = tokenizer()
    rng = np.random.default_rng(5)
    lines = [*("".join(rng.choice([*"一二三字漢"], 40)) for _ in range(200)), "the cat", "", *PLAIN]
    assert many(model, lines) == model.encode_batch(lines)
    assert model._words is not None
    assert max(len(word.encode()) for word in model._words._place) <= words.MAX_WORD_BYTES
