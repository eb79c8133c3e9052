"""Unfit training pairs leave as pairs (case A13), each for the first reason that holds, and are counted."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from texts import numbers

from crosslight.data.cleaning import REASONS, Cleaning, without_nulls
from crosslight.data.corpus import SCHEMA, Pairs, Part, arrow_text
from crosslight.data.encoded import EncodedPairs
from crosslight.data.preparation import prepare
from crosslight.data.report import cleaning_table
from crosslight.data.training_text import TrainingText
from crosslight.errors import ConfigError, DataError

LIGHT: dict[str, Any] = {
    "max_len": 4,
    "over_long": "drop",
    "max_ratio": None,
    "drop_identical": False,
    "drop_duplicates": False,
    "drop_control_characters": False,
    "drop_wrong_script": False,
}


def judged(cleaning: Cleaning, *pairs: tuple[str | None, str | None]) -> dict[str, list[bool]]:
    columns = [arrow_text([pair[side] for pair in pairs]) for side in (0, 1)]
    chunk = without_nulls(pa.record_batch(columns, schema=SCHEMA))
    return {reason: mask.tolist() for reason, mask in cleaning.judge_text(chunk, "de", "en").items()}


def cleaned(cache: Path, *pairs: tuple[str, str], **options: Any) -> tuple[EncodedPairs, dict[str, Any]]:
    part = Part("train", Pairs("toy", [s for s, _ in pairs], [t for _, t in pairs]), "symbols", "symbols")
    text = TrainingText([part], Cleaning(**LIGHT | options))
    return prepare(text, numbers(9), None, drop_leaks=False, cache=cache)


def texts(data: EncodedPairs) -> list[tuple[str, str]]:
    return [(data.source_text[i], data.target_text[i]) for i in range(len(data))]


def left_out(report: dict[str, Any]) -> dict[str, int]:
    return {reason: count for reason, count in report["left_out"].items() if count}


def test_pairs_leave_together_and_are_counted(tmp_path: Path) -> None:
    long = " ".join("1" * 5)
    pairs = [("1", "2"), ("3", ""), ("", "4"), ("", ""), (long, "5"), ("6", long), ("", long), ("1 1 1 1", "7")]
    data, report = cleaned(tmp_path, *pairs)
    assert texts(data) == [("1", "2"), ("1 1 1 1", "7")]
    assert [data.source[i].tolist() for i in range(2)] == [[4, 2], [4, 4, 4, 4, 2]]
    assert [data.target[i].tolist() for i in range(2)] == [[5, 2], [10, 2]]
    assert [data.row[0], data.row[1]] == [0, 7]
    assert left_out(report) == {"empty": 4, "too long": 2}
    assert (report["read"], report["kept"], report["truncated"]) == (8, 2, 0)


def test_the_three_unfit_pairs_of_six_leave_only_with_the_filter_on(tmp_path: Path) -> None:
    """Case A13: target 3 and source 5 are empty, pair 6 has a ratio of 40 to 1."""
    pairs = [("1", "2"), ("2", "3"), ("3", ""), ("4", "5"), ("", "6"), (" ".join("7" * 40), "8")]
    data, report = cleaned(tmp_path, *pairs, max_len=50, max_ratio=3.0)
    assert texts(data) == [("1", "2"), ("2", "3"), ("4", "5")]
    assert left_out(report) == {"empty": 2, "ratio": 1}
    data, report = cleaned(tmp_path, *pairs, max_len=50)
    assert texts(data) == [("1", "2"), ("2", "3"), ("4", "5"), pairs[5]]
    assert left_out(report) == {"empty": 2}


def test_fit_pairs_all_stay(tmp_path: Path) -> None:
    data, report = cleaned(tmp_path, ("1", "2"), ("3 4", "5"), max_len=2)
    assert texts(data) == [("1", "2"), ("3 4", "5")]
    assert report["left_out"] == dict.fromkeys(REASONS, 0)
    assert report["examples"] == {}


def test_a_corpus_without_any_fit_pair_is_refused_with_the_reasons(tmp_path: Path) -> None:
    message = "toy: no training pair is left of 3 (2 empty, 1 too long); see the cleaning settings, or give other files"
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        cleaned(tmp_path, ("", "1"), ("2", ""), ("3 4", "5"), max_len=1)
    with pytest.raises(DataError, match=r"^toy: no training pair is left of 0 \(there were none\); "):
        cleaned(tmp_path)
    assert not list(tmp_path.glob("*/")), "nothing is kept of it"


def test_bounds_are_included(tmp_path: Path) -> None:
    pairs = [("1 2 3 4", "1 2"), ("1 2 3 4", "1"), ("1", "1 2"), ("1", "1 2 3"), ("1 2 3 4 5", "1 2 3")]
    data, report = cleaned(tmp_path, *pairs, max_ratio=2.0)
    assert texts(data) == [pairs[0], pairs[2]]
    assert left_out(report) == {"too long": 1, "ratio": 2}


def test_truncation_keeps_the_left_part_of_both_sides_and_counts_pairs(tmp_path: Path) -> None:
    pairs = [("1 2 3", "4"), ("1 2 3 4 5 6", "7 8"), ("1", "8 7 6 5 4"), ("5 4 3 2 1", "1 2 3 4 5"), ("", "1 2 3 4 5")]
    data, report = cleaned(tmp_path, *pairs, over_long="truncate")
    assert [data.source[i].tolist() for i in range(4)] == [[4, 5, 6, 2], [4, 5, 6, 7, 2], [4, 2], [8, 7, 6, 5, 2]]
    assert [data.target[i].tolist() for i in range(4)] == [[7, 2], [10, 11, 2], [11, 10, 9, 8, 2], [4, 5, 6, 7, 2]]
    assert texts(data) == pairs[:4], "the text stays whole"
    assert report["truncated"] == 3
    assert left_out(report) == {"empty": 1}


def test_truncated_pairs_that_then_leave_are_not_counted_as_cut(tmp_path: Path) -> None:
    long = ("1 2 3 4 5", "6")
    data, report = cleaned(tmp_path, long, long, ("7", "8"), over_long="truncate", drop_duplicates=True)
    assert len(data) == 2
    assert left_out(report) == {"duplicate": 1}
    assert report["truncated"] == 1


def test_a_pair_counts_for_the_first_reason_only(tmp_path: Path) -> None:
    pairs = [("1 2 3 4 5", "1 2 3 4 5"), ("1", "1"), ("1", "1"), ("1 2 3 4 5", "1"), ("2", "3"), ("2", "3")]
    options = {"drop_identical": True, "drop_duplicates": True, "max_ratio": 2.0}
    data, report = cleaned(tmp_path, *pairs, **options)
    assert texts(data) == [("2", "3")]
    assert left_out(report) == {"identical": 3, "too long": 1, "duplicate": 1}


INVISIBLE = ["", " ", "\t \v", "\u00a0", "\u200b", "\u3000", "\u2028\u0085", "\ufeff", "\0", "\u00ad", "\u200e\u2060"]


@pytest.mark.parametrize("blank", [*INVISIBLE, None])
def test_a_side_that_shows_nothing_is_empty(blank: str | None) -> None:
    pairs = [(blank, "x"), ("x", blank), (blank, blank), ("x", "x"), (f"{blank or ''}x", "x")]
    assert judged(Cleaning(**LIGHT), *pairs) == {"empty": [True, True, True, False, False]}


@pytest.mark.parametrize("shown", [".", "0", "😀", "\u2028a", "ก", "\u00a0…\u00a0"])
def test_a_side_that_shows_anything_is_not_empty(shown: str) -> None:
    assert judged(Cleaning(**LIGHT), (shown, shown)) == {"empty": [False]}


def test_control_characters_but_those_that_separate_words_make_a_pair_leave() -> None:
    cleaning = Cleaning(**LIGHT | {"drop_control_characters": True})
    separators = {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}
    codes = [code for code in range(0x250) if not 0x20 <= code < 0x7F]
    expected = [(code < 0x20 or 0x7F <= code < 0xA0) and code not in separators for code in codes]
    assert judged(cleaning, *((f"a{chr(code)}b", "c") for code in codes))["control characters"] == expected
    assert judged(cleaning, *(("c", f"a{chr(code)}b") for code in codes))["control characters"] == expected
    assert sum(expected) == 65 - 6, "65 characters are of the class Cc"


def test_copies_are_compared_without_the_space_around_them() -> None:
    cleaning = Cleaning(**LIGHT | {"drop_identical": True})
    pairs = [("a b", "a b"), (" a b", "a b\t"), ("a\u00a0", "a"), ("a b", "a  b"), ("A", "a"), ("a", "b")]
    assert judged(cleaning, *pairs)["identical"] == [True, True, True, False, False, False]


def test_each_side_is_judged_by_its_own_language() -> None:
    cleaning = Cleaning(**LIGHT | {"drop_wrong_script": True})
    russian, german = "Привет, мир", "Hallo, Welt"
    columns = [arrow_text([russian, german, german, russian]), arrow_text([german, russian, german, russian])]
    chunk = pa.record_batch(columns, schema=SCHEMA)
    for langs, wrong in {("ru", "de"): [0, 1, 1, 1], ("de", "ru"): [1, 0, 1, 1], ("de", "en"): [1, 1, 0, 1]}.items():
        assert cleaning.judge_text(chunk, *langs)["wrong script"].tolist() == list(map(bool, wrong))


def test_lengths_agree_with_plain_numbers() -> None:
    rng = np.random.default_rng(1)
    source, target = rng.integers(0, 12, (2, 500), np.int32)
    masks = Cleaning(**LIGHT | {"max_len": 8, "max_ratio": 2.5}).judge_lengths(source, target)
    for i, (s, t) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        found = [reason for reason in ("empty", "too long", "ratio") if masks[reason][i]]
        shorter, longer = sorted((s, t))
        expected = ["empty"] * (shorter == 0) + ["too long"] * (longer > 8)
        assert found == expected + ["ratio"] * (longer > 2.5 * shorter)


def test_only_asked_reasons_are_looked_for_and_all_are_listed() -> None:
    strict = Cleaning(**LIGHT | {"max_ratio": 2.0} | {key: True for key in LIGHT if key.startswith("drop_")})
    one = np.ones(1, np.int32)
    assert list(judged(Cleaning(**LIGHT), ("a", "b"))) == ["empty"]
    assert list(Cleaning(**LIGHT).judge_lengths(one, one)) == ["empty", "too long"]
    found = [*judged(strict, ("a", "b")), *strict.judge_lengths(one, one)]
    assert [reason for reason in REASONS if reason in found] == [*REASONS[:-2]]
    assert set(found) <= set(REASONS)


def test_the_options_are_all_settings() -> None:
    assert Cleaning(**LIGHT).options == LIGHT
    assert set(LIGHT) == {field.name for field in dataclasses.fields(Cleaning)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_len": 0}, "cleaning.max_len: 0 leaves no pair; it is a number of pieces, such as 256"),
        (
            {"max_ratio": 0.5},
            "cleaning.max_ratio: 0.5 leaves no pair; it is the longer side's pieces over the shorter one's, such as 3",
        ),
    ],
)
def test_settings_that_leave_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Cleaning(**LIGHT | options)


def test_the_table_names_each_reason_with_its_share(tmp_path: Path) -> None:
    pairs = [("1", "2")] * 7 + [("", "2")] * 2 + [("1 2 3 4 5 6", "7")]
    _, report = cleaned(tmp_path, *pairs)
    assert list(cleaning_table(report)) == [
        "data: 10 pairs read, 7 kept",
        "  empty                           2   20.00 % left out",
        "  too long                        1   10.00 % left out",
    ]
    _, report = cleaned(tmp_path, *pairs, over_long="truncate")
    assert list(cleaning_table(report)) == [
        "data: 10 pairs read, 8 kept",
        "  empty                           2   20.00 % left out",
        "  truncated                       1   10.00 % cut",
    ]


def test_a_tokenizer_learns_from_what_the_text_does_not_rule_out() -> None:
    pairs = [("gut", "good"), ("", "x"), ("gleich", "gleich"), ("Привет", "y"), ("a\x96", "z"), ("gut", "good")]
    part = Part("train", Pairs("toy", [s for s, _ in pairs], [t for _, t in pairs]), "de", "en")
    strict = {key: True for key in LIGHT if key.startswith("drop_")}
    text = TrainingText([part, part], Cleaning(**LIGHT | strict))
    assert list(text.source()) == ["gut", "gut"] * 2
    assert list(text.target()) == ["good", "good"] * 2
    assert list(text.source()) == ["gut", "gut"] * 2, "it can be read again"
    light = TrainingText([part], Cleaning(**LIGHT))
    assert list(light.source()) == [source for source, _ in pairs if source]
