"""What becomes of each of twenty hand-made bad pairs, under both ways to clean, with real subwords."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from texts import Text

from crosslight import build
from crosslight.config.compose import compose
from crosslight.data.cleaning import Cleaning
from crosslight.data.corpus import SCHEMA, Part, arrow_text, read_pairs
from crosslight.data.encoded import EncodedPairs, encode_pairs
from crosslight.data.lines import read_lines
from crosslight.data.preparation import prepare
from crosslight.data.training_text import TrainingText
from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.sentencepiece import SentencePieceRecipe

pytestmark = pytest.mark.shared

# What is wrong with pair i, and why it leaves under cleaning=light and cleaning=strict; None: it stays.
FATES: list[tuple[str, str | None, str | None]] = [
    ("nothing", None, None),
    ("source empty", "empty", "empty"),
    ("target empty", "empty", "empty"),
    ("both empty", "empty", "empty"),
    ("spaces and a TAB", "empty", "empty"),
    ("no-break space and zero-width space", "empty", "empty"),
    ("a copy", None, "identical"),
    ("target of 600 words", "too long", "too long"),
    ("source of 600 words", "too long", "too long"),
    ("U+2028 and NEL inside a segment", None, None),
    ("the same letter composed and decomposed", None, None),
    ("a soft hyphen, and a control character from cp1252", None, "control characters"),
    ("special tokens as text", None, None),
    ("mojibake of printable letters", None, None),
    ("emoji, two pieces against nine", None, "ratio"),
    ("pair 0 once more", None, "duplicate"),
    ("not a translation", None, None),
    ("Cyrillic instead of German", None, "wrong script"),
    ("source null", "empty", "empty"),
    ("target null", "empty", "empty"),
]

Lines = list[tuple[str | None, str | None]]

SPECIAL = ["<s>", "</s>", "<pad>", "<unk>", "[PAD]", "<2en>"]


@pytest.fixture(scope="module")
def raw(shared: Path) -> Lines:
    file = shared / "hub" / "hub" / "datasets" / "local" / "dirty-de-en" / "train.jsonl"
    rows = [json.loads(line)["translation"] for line in file.read_bytes().split(b"\n") if line]
    return [(row["de"], row["en"]) for row in rows]


@pytest.fixture(scope="module")
def tokenizers(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    """2,000 joint pieces from 4,000 pairs of multi30k, with our default options and one control symbol."""
    cache = tmp_path_factory.mktemp("tokenizers")
    overrides = ["data=text_files", "data.train.source=a", "data.train.target=b", "tokenizer.vocab_size=2000"]
    recipe = build.build_tokenizer_recipe(build.plain(compose([*overrides, f"tokenizer.cache={cache}"])))
    assert isinstance(recipe, SentencePieceRecipe)
    german, english = (read_lines(shared / "data" / "multi30k" / f"train.{lang}")[:4000] for lang in ("de", "en"))
    return recipe.fit(Text(german, english), ["<2en>"])


class Raw:
    """The pairs as a source, nulls and all."""

    name = "dirty-de-en"

    def __init__(self, pairs: Lines) -> None:
        self.pairs = pairs

    def fingerprint(self) -> str:
        return repr(self.pairs)

    def chunks(self) -> Iterator[pa.RecordBatch]:
        columns = [arrow_text([pair[side] for pair in self.pairs]) for side in (0, 1)]
        yield pa.record_batch(columns, schema=SCHEMA)


@functools.cache
def cleaning(name: str) -> Cleaning:
    return build.build_cleaning(build.plain(compose(["data=copy", f"cleaning={name}"])))


def prepared(raw: Lines, tokenizers: Tokenizers, name: str, cache: Path) -> tuple[EncodedPairs, dict[str, Any]]:
    corpus = TrainingText([Part("train", Raw(raw), "de", "en")], cleaning(name))
    return prepare(corpus, tokenizers, None, drop_leaks=False, cache=cache)


@pytest.mark.parametrize(("name", "column"), [("light", 1), ("strict", 2)])
def test_each_pair_has_its_fate(name: str, column: int, raw: Lines, tokenizers: Tokenizers, tmp_path: Path) -> None:
    fates = [fate[column] for fate in FATES]
    data, report = prepared(raw, tokenizers, name, tmp_path)
    stay = [row for row, fate in enumerate(fates) if fate is None]
    assert [data.row[i] for i in range(len(data))] == stay
    assert [(data.source_text[i], data.target_text[i]) for i in range(len(data))] == [raw[row] for row in stay]
    assert report["read"] == len(FATES) == 20
    assert {reason: count for reason, count in report["left_out"].items() if count} == {
        reason: fates.count(reason) for reason in set(fates) - {None}
    }
    for reason, examples in report["examples"].items():
        assert all(fates[example["line"] - 1] == reason for example in examples)


def test_each_alone_has_the_same_fate_but_the_repetition(raw: Lines, tokenizers: Tokenizers, tmp_path: Path) -> None:
    good = ("Ein Mann schläft.", "A man sleeps.")
    for pair, (what, _, fate) in zip(raw, FATES, strict=True):
        _, report = prepared([good, pair], tokenizers, "strict", tmp_path)
        found = [reason for reason, count in report["left_out"].items() if count]
        assert found == [fate] * (fate not in (None, "duplicate")), what


def test_special_tokens_as_text_never_become_special_ids(tokenizers: Tokenizers) -> None:
    tokenizer = tokenizers.source
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.symbol_id("<2en>")}
    assert len(special) == 4
    lines = ["<s> [PAD] </s> <unk> <2en>", *SPECIAL, *(f"a{token}b" for token in SPECIAL), "".join(SPECIAL)]
    for line, ids in zip(lines, tokenizer.encode_batch(lines), strict=True):
        assert ids, line
        assert not special & set(ids), line


def test_line_separators_inside_a_segment_lose_no_text(raw: Lines, tokenizers: Tokenizers, tmp_path: Path) -> None:
    """The rule nmt_nfkc knows U+2028 as a space; NEL is a character that this tokenizer has not seen."""
    data, _ = prepared(raw, tokenizers, "strict", tmp_path)
    place = [data.row[i] for i in range(len(data))].index(9)
    assert data.source_text[place] == "a\u2028b\u0085c"
    assert tokenizers.source.decode_batch([data.source[place].tolist()]) == ["a b⁇c"]


def test_composed_and_decomposed_text_have_the_same_ids(tokenizers: Tokenizers) -> None:
    composed, decomposed = tokenizers.source.encode_batch(["über Straße", "u\u0308ber Straße"])
    assert composed == decomposed


def test_text_around_an_unseen_character_is_not_lost(tokenizers: Tokenizers) -> None:
    lines = ["Soft\u00adhyphen", "control\u0096character", "b\u0085c"]
    decoded = tokenizers.source.decode_batch(tokenizers.source.encode_batch(lines))
    assert decoded == ["Soft⁇hyphen", "control⁇character", "b⁇c"]


def test_a_test_set_keeps_all_twenty(raw: Lines, tokenizers: Tokenizers, caplog: pytest.LogCaptureFixture) -> None:
    pairs = read_pairs(Raw(raw))
    data = encode_pairs(pairs, tokenizers, limit=257)
    assert len(data) == 20
    assert [data.source_text[i] for i in range(20)] == [source or "" for source, _ in raw]
    assert max(data.source_lengths.max(), data.target_lengths.max()) == 257
    cut = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert cut == ["dirty-de-en, source line 9", "dirty-de-en, target line 8"]
