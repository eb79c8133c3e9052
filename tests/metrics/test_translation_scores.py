"""Scores are sacreBLEU's own: equal to its command, over whole texts, with a signature (cases I01, I06, I10)."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from crosslight.data.lines import write_lines
from crosslight.errors import ConfigError, DataError
from crosslight.metrics.translation import check_target_language, score_translations

REFERENCES = [
    "Ein Mann mit einem Hut fährt Rad.",
    "Zwei Hunde spielen im Schnee, und es schneit.",
    "links\u2028rechts und\u0085weiter",
    "",
    "Der Preis beträgt 3.5 Euro (20%).",
    "Kein Satz wird ausgelassen.",
]
HYPOTHESES = [
    "Ein Mann mit Hut fährt Rad.",
    "Zwei Hunde spielen im Schnee.  ",
    "links\u2028rechts und\u0085weiter",
    "Hier steht etwas",
    "Der Preis ist 3.5 Euro (20%).",
    "",
]
CHINESE = ["我们喜欢机器翻译。", "今天天气很好，我们去公园。", "他有三本书。"]
CHINESE_REFERENCES = ["我们喜欢机器翻译。", "今天天气很好，他们去公园。", "他有两本书。"]


def by_command(folder: Path, hypotheses: list[str], references: list[str], *options: str) -> dict[str, dict]:
    write_lines(folder / "hypotheses.txt", hypotheses)
    write_lines(folder / "references.txt", references)
    command = [sys.executable, "-m", "sacrebleu", folder / "references.txt", "-i", folder / "hypotheses.txt"]
    result = subprocess.run(
        [*map(str, command), "-m", "bleu", "chrf", "-w", "14", *options], capture_output=True, text=True, check=True
    )
    return {score["name"].lower().rstrip("2"): score for score in json.loads(result.stdout)}


@pytest.mark.parametrize(
    ("hypotheses", "references", "lang", "options"),
    [(HYPOTHESES, REFERENCES, "de", ()), (CHINESE, CHINESE_REFERENCES, "zh", ("-tok", "zh"))],
    ids=["de", "zh"],
)
def test_scores_equal_those_of_the_sacrebleu_command_on_the_written_files(
    tmp_path: Path, hypotheses: list[str], references: list[str], lang: str, options: tuple[str, ...]
) -> None:
    ours, theirs = (
        score_translations(hypotheses, references, lang),
        by_command(tmp_path, hypotheses, references, *options),
    )
    for metric in ("bleu", "chrf"):
        assert 10 < ours[metric].value < 95
        assert ours[metric].value == pytest.approx(theirs[metric]["score"], abs=1e-9)
        assert ours[metric].signature == theirs[metric]["signature"]


def test_the_tokenizer_follows_the_target_language_and_shows_in_the_signature() -> None:
    chinese, as_german = (score_translations(CHINESE, CHINESE_REFERENCES, lang)["bleu"] for lang in ("zh", "de"))
    assert "tok:zh" in chinese.signature
    assert "tok:13a" in as_german.signature
    assert chinese.value > as_german.value + 10, "unsegmented text earns next to nothing under 13a"


@pytest.mark.skipif(importlib.util.find_spec("MeCab") is not None, reason="the segmenter is installed")
def test_a_missing_segmenter_is_an_error_before_training_that_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"data\.target_lang: .*ja-mecab"):
        check_target_language("ja")
    check_target_language("de")


@pytest.mark.parametrize(("hypotheses", "references"), [(["right", "wrong"], ["right"]), (["a", "b"], ["a", "b", "c"])])
def test_unequal_counts_are_refused_with_both(hypotheses: list[str], references: list[str]) -> None:
    with pytest.raises(DataError, match=rf"{len(hypotheses)} hypotheses .* {len(references)} references"):
        score_translations(hypotheses, references, "de")


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [(["", "", ""], REFERENCES[:3]), (["", ""], ["", ""]), ([], []), (["a b c d"], [""])],
    ids=["all hypotheses empty", "all empty", "no segments", "reference empty"],
)
def test_empty_text_gives_a_number_and_not_an_exception(hypotheses: list[str], references: list[str]) -> None:
    scores = score_translations(hypotheses, references, "de")
    assert (scores["bleu"].value, scores["chrf"].value) == (0.0, 0.0)
    assert scores["exact_match"].value == (100.0 if hypotheses == ["", ""] else 0.0)


def test_an_empty_hypothesis_counts_and_does_not_shift_the_others() -> None:
    all_there = score_translations(REFERENCES, REFERENCES, "de")
    one_missing = score_translations(["", *REFERENCES[1:]], REFERENCES, "de")
    assert all_there["bleu"].value == pytest.approx(100)
    assert 50 < one_missing["bleu"].value < 100
    assert one_missing["exact_match"].value == pytest.approx(100 * 5 / 6)


def test_exact_match_asks_for_every_character() -> None:
    score = score_translations(["a b", "a  b", "A b", "a b "], ["a b"] * 4, "de")["exact_match"]
    assert score.value == 25.0
    assert score.signature == "exact|lines:4"
