"""Training text that is also in a validation or test set is found, near copies too, and reported in true numbers."""

import logging
import re
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from crosslight.data.corpus import SCHEMA, Pairs, arrow_text
from crosslight.data.leaks import NOT_STABLE, LeakGuard, normal_form
from crosslight.data.report import judge_leaks
from crosslight.errors import DataError

VALIDATION = Pairs("val", ["Der Hund schläft.", "Ein roter Ball!", "..."], ["The dog sleeps.", "A red ball!", "..."])
TEST = Pairs("test", ["Der Hund schläft.", "„Wer?“ – Niemand"], ["The dog is asleep.", "'Who?' - nobody"])


def chunk(*pairs: tuple[str, str]) -> pa.RecordBatch:
    return pa.record_batch([arrow_text([pair[side] for pair in pairs]) for side in (0, 1)], schema=SCHEMA)


def rows(*pairs: tuple[str, str], **sets: Pairs) -> list[bool]:
    return LeakGuard(sets or {"validation": VALIDATION, "test": TEST}).look(chunk(*pairs)).rows.tolist()


def reported(*chunks: pa.RecordBatch) -> dict[str, Any]:
    guard = LeakGuard({"validation": VALIDATION, "test": TEST})
    for each in chunks:
        guard.count(guard.look(each), np.ones(each.num_rows, bool))
    return guard.report()


@pytest.mark.parametrize(
    "copy",
    [
        "Der Hund schläft.",
        "der hund SCHLÄFT",
        "  Der   Hund\tschläft .",
        "Der Hund »schläft«!?",
        "Der Hund schla\u0308ft.",
        "Ｄｅｒ　Ｈｕｎｄ　ｓｃｈｌäｆｔ．",
        "Der\u00a0Hund\u200b schläft…",
        "Der-Hund-schläft",
    ],
)
def test_near_copies_are_found_on_either_side(copy: str) -> None:
    assert rows((copy, "x")) == [True]
    assert rows(("x", copy), test=Pairs("swapped", TEST.target, TEST.source)) == [True]


@pytest.mark.parametrize("other", ["Der Hund schläft nicht.", "Hund schläft", "Der Hund schlaft", "Der Hund schläft 2"])
def test_other_sentences_are_not_found(other: str) -> None:
    assert rows((other, other)) == [False]


def test_a_sentence_counts_only_on_its_own_side() -> None:
    assert rows(("The dog sleeps.", "Der Hund schläft."), ("x", "a red ball"), ("ein roter Ball", "y")) == [
        False,
        True,
        True,
    ]


def test_lines_without_letters_and_digits_never_count() -> None:
    blanks = Pairs("blanks", ["...", "", " ", "—", "😀", "\u200b"], ["?!", "…", "", "\t", "%", "."])
    assert not any(rows(*blanks, validation=blanks))
    assert rows(("x", "y"), ("", ""), validation=Pairs("none", [], [])) == [False, False]


@pytest.mark.parametrize(
    ("one", "other"),
    [("वह दिन में आया।", "वह दान में आया।"), ("ไม้ที่นี่", "ไม่ทีนี่"), ("கல்", "கால")],
)
def test_vowel_signs_make_a_difference(one: str, other: str) -> None:
    """Vowels of the scripts of India and South-East Asia are marks to Unicode, not letters."""
    assert rows((one, "x"), test=Pairs("test", [other], ["y"])) == [False]
    assert rows((one, "x"), test=Pairs("test", [one + "!"], ["y"])) == [True]


def test_normal_form_joins_exactly_what_python_joins() -> None:
    import unicodedata

    rng = np.random.default_rng(5)
    letters = np.array([*"aAbBäÄ１1Ｘxﬁ", *" .,!\u00a0\u2028-_"])
    lines = ["".join(rng.choice(letters, size)) for size in rng.integers(0, 7, 3000)]
    expected = [
        "".join(c for c in unicodedata.normalize("NFKC", line).lower() if unicodedata.category(c)[0] in "LN")
        for line in lines
    ]
    assert normal_form(arrow_text(lines)).to_pylist() == expected


def test_the_report_counts_lines_of_each_set_near_and_exact() -> None:
    report = reported(
        chunk(("der hund schläft", "x"), ("neu", "A red ball!"), ("neu", "neu")),
        chunk(("Ein roter Ball!", "a red ball"), ("wer niemand", "who nobody"), ("...", "...")),
    )
    assert report == {
        "training_pairs": 4,
        "sets": {
            "validation": {"lines": 3, "source": 2, "source_exact": 1, "target": 1, "target_exact": 1},
            "test": {"lines": 2, "source": 2, "source_exact": 0, "target": 1, "target_exact": 0},
        },
    }


def test_a_line_that_a_set_has_twice_counts_twice_and_a_training_pair_once_each_time() -> None:
    guard = LeakGuard({"test": Pairs("test", ["Ja.", "ja", "Nein."], ["Yes.", "Yes.", "No."])})
    guard.count(guard.look(chunk(("Ja.", "q"), ("Ja.", "q"), ("JA", "yes"))), np.ones(3, bool))
    counts = {"lines": 3, "source": 2, "source_exact": 1, "target": 2, "target_exact": 0}
    assert guard.report() == {"training_pairs": 3, "sets": {"test": counts}}


def test_random_chunks_give_the_counts_of_plain_sets() -> None:
    rng = np.random.default_rng(8)

    def pairs(size: int) -> list[tuple[str, str]]:
        return [(f"Quelle {a}", f"ziel {b}!") for a, b in rng.integers(0, 60, (size, 2))]

    held, training = pairs(20), pairs(300)
    guard = LeakGuard({"test": Pairs("test", [s for s, _ in held], [t.upper() for _, t in held])})
    overlaps = [guard.look(chunk(*training[i : i + 37])) for i in range(0, 300, 37)]
    for overlap in overlaps:
        guard.count(overlap, np.ones(len(overlap.rows), bool))
    sources, targets = ({pair[side] for pair in held} for side in (0, 1))
    leaked = [s in sources or t in targets for s, t in training]
    assert [bool(row) for overlap in overlaps for row in overlap.rows] == leaked
    found = {side: {pair[side] for pair in training} for side in (0, 1)}
    in_source, in_target = (sum(pair[side] in found[side] for pair in held) for side in (0, 1))
    counts = {"lines": 20, "source": in_source, "source_exact": in_source, "target": in_target, "target_exact": 0}
    assert guard.report() == {"training_pairs": sum(leaked), "sets": {"test": counts}}


def test_looking_changes_nothing() -> None:
    guard = LeakGuard({"test": TEST})
    before = guard.report()
    guard.look(chunk(*TEST))
    assert guard.report() == before
    assert before["training_pairs"] == 0


def test_the_fingerprint_is_of_names_and_content() -> None:
    same = LeakGuard({"test": Pairs("a copy elsewhere", TEST.source, TEST.target)})
    assert LeakGuard({"test": TEST}).fingerprint == same.fingerprint
    others = [{"dev": TEST}, {"test": Pairs("test", TEST.target, TEST.source)}, {"test": TEST, "v": VALIDATION}, {}]
    prints = [repr(LeakGuard(sets).fingerprint) for sets in others]
    assert len({*prints, repr(same.fingerprint)}) == 5


LEAKY = {"leaks": reported(chunk(("der hund schläft", "x"), ("Ein roter Ball!", "neu")))}
FOUND = (
    "data.leaks: 2 training pairs share a side with sentences that will be scored: "
    "validation: 2 of 3 sources (1 letter by letter), 0 targets (0); "
    "test: 1 of 2 sources (0 letter by letter), 0 targets (0)"
)
REMEDY = "; data.leaks=drop leaves these pairs out"


@pytest.mark.parametrize(("policy", "end"), [("warn", REMEDY), ("drop", " (left out)")])
def test_a_warning_says_how_many_and_what_was_done(policy: str, end: str, caplog: pytest.LogCaptureFixture) -> None:
    judge_leaks(LEAKY, policy)
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [(logging.WARNING, FOUND + end)]


def test_an_error_says_the_same_and_the_remedy() -> None:
    with pytest.raises(DataError, match=f"^{re.escape(FOUND + REMEDY)}$"):
        judge_leaks(LEAKY, "error")


@pytest.mark.parametrize("policy", ["ignore", "warn", "drop", "error"])
def test_no_leak_or_none_looked_for_says_nothing(policy: str, caplog: pytest.LogCaptureFixture) -> None:
    judge_leaks({"leaks": None}, policy)
    judge_leaks({"leaks": reported(chunk(("neu", "neu")))}, policy)
    if policy == "ignore":
        judge_leaks(LEAKY, policy)
    assert not caplog.records


def test_a_set_without_leaks_is_not_named() -> None:
    with pytest.raises(DataError) as caught:
        judge_leaks({"leaks": reported(chunk(("x", "a red ball")))}, "error")
    assert "validation: 0 of 3 sources (0 letter by letter), 1 targets (0)" in str(caught.value)
    assert "test:" not in str(caught.value)


def test_what_is_taken_for_normalised_is() -> None:
    """Lines of stable characters are not normalised, so whatever meets in them must be in NFKC already."""
    stable = [c for c in map(chr, [*range(0xD800), *range(0xE000, 0x20000)]) if c.isprintable()]
    unstable = pc.match_substring_regex(pa.array(stable), NOT_STABLE).to_pylist()
    stable = [c for c, other in zip(stable, unstable, strict=True) if not other]
    assert len(stable) > 20_000
    rng = np.random.default_rng(3)
    for text in (*stable, *("".join(rng.choice(stable, 40)) for _ in range(2000))):
        assert unicodedata.normalize("NFKC", text) == text


def test_a_pair_that_leaves_for_another_reason_is_no_leak() -> None:
    guard = LeakGuard({"test": Pairs("test", ["a b"], ["c"])})
    guard.count(guard.look(chunk(("A, b", "x"), ("a b", "y"), ("other", "z"))), np.array([True, False, True]))
    assert guard.report()["training_pairs"] == 1
