"""Text in the wrong writing system is found by its letters; what writes no script of its own never counts."""

import unicodedata

import numpy as np
import pyarrow as pa
import pytest

from crosslight.data.scripts import SCRIPTS, scripts_of, wrong_script

# A sentence in the language, by script; the words say nothing, the letters do.
SENTENCES = {
    "Latin": "Ein Mann fährt müde über die Straße.",
    "Cyrillic": "Привет, мир! Как дела?",
    "Greek": "Καλημέρα κόσμε.",
    "Arabic": "صباح الخير يا عالم",
    "Hebrew": "שלום עולם",
    "Devanagari": "नमस्ते दुनिया, आप कैसे हैं?",
    "Thai": "สวัสดีชาวโลก",
    "Han": "你好，世界。",
    "Hiragana": "おはようございます。",
    "Katakana": "テレビとラジオ",
    "Hangul": "안녕하세요 세계",
    "Georgian": "გამარჯობა მსოფლიო",
    "Bengali": "ওহে বিশ্ব",
}


def wrong(lang: str, *lines: str) -> list[bool]:
    return wrong_script(pa.array(lines, pa.string()), lang).tolist()


def test_a_language_passes_its_own_scripts_and_no_other() -> None:
    shown = {lang: scripts for lang, scripts in SCRIPTS.items() if set(scripts) & set(SENTENCES)}
    assert len(shown) > 70
    for lang, scripts in shown.items():
        related = set(scripts) | ({"Hiragana"} if "Katakana" in scripts else set())
        assert wrong(lang, *SENTENCES.values()) == [script not in related for script in SENTENCES], lang


def test_every_script_of_the_table_is_one_that_arrow_knows() -> None:
    for lang in SCRIPTS:
        wrong(lang, "a")  # an unknown name would be an error of the regular expression


def test_half_of_the_letters_may_be_foreign_and_no_more() -> None:
    assert wrong("de", "ab пр", "ab при", "abc пр", "a пр", "Das Wort «привет» heißt hallo") == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_the_count_agrees_with_a_count_by_unicode_names() -> None:
    rng = np.random.default_rng(3)
    letters = np.array([*"abzäßñ", *"жщя", *"αω", *"漢字", *" .,!?0189-'\u200b\u2028"])
    lines = ["".join(rng.choice(letters, size)) for size in rng.integers(0, 12, 2000)]

    def expected(line: str) -> bool:
        named = [unicodedata.name(letter) for letter in line if letter.isalpha()]
        return 2 * sum("LATIN" not in name for name in named) > len(named)

    found = wrong("de", *lines)
    assert found == [expected(line) for line in lines]
    assert 0.2 < np.mean(found) < 0.8, "both answers are common, so the comparison says something"


@pytest.mark.parametrize("lang", ["de", "ru", "zh", "hi"])
def test_lines_without_letters_pass_in_every_language(lang: str) -> None:
    assert not any(wrong(lang, "", "   ", "12.5 %", "?!…", "😀🏴\u200d☠️", "\u0301", "\0", "→ ≥ €"))


def test_combining_marks_belong_to_no_script() -> None:
    assert wrong("de", unicodedata.normalize("NFD", "Müßige Äußerungen"), "u\u0308") == [False, False]


def test_numbers_and_names_in_latin_letters_do_not_spoil_a_sentence() -> None:
    assert wrong("ru", "Компания BMW выпустила X5") == [False]
    assert wrong("ja", "NHKは東京にあります") == [False]


@pytest.mark.parametrize("line", ["あーーー", "µµµ a", "ー"])
def test_letters_that_all_scripts_share_are_not_foreign(line: str) -> None:
    """The mark of a long vowel (U+30FC) and the micro sign are letters of the script `Common`."""
    assert wrong("ja" if "ー" in line else "de", line) == [False]


def test_regions_and_case_of_a_code_say_nothing() -> None:
    assert scripts_of("pt_BR") == scripts_of("PT-br") == scripts_of("pt") == ("Latin",)
    assert scripts_of("zh-Hans") == scripts_of("zh_CN") == ("Han",)
    assert scripts_of("sr") == ("Cyrillic", "Latin")
    assert scripts_of("sr-Cyrl") == scripts_of("uz_Cyrl") == ("Cyrillic",)


def test_a_language_that_is_not_in_the_table_is_not_judged() -> None:
    assert scripts_of("tlh") is None
    assert scripts_of("symbols") is None
    assert wrong("tlh", *SENTENCES.values()) == [False] * len(SENTENCES)


def test_each_line_is_judged_by_itself() -> None:
    lines = ["gut", "плохо", "", "gut", "плохо плохо", "1"]
    assert wrong("de", *lines) == [wrong("de", line)[0] for line in lines] == [False, True, False, False, True, False]
    assert wrong_script(pa.array(["x", *lines])[1:], "de").tolist() == wrong("de", *lines), "a slice of an array"
    assert wrong_script(pa.array([], pa.string()), "de").tolist() == []
