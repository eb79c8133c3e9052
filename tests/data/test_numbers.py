"""Values in words: right in known languages, seeded, held-out texts apart, every language of num2words usable."""

import logging
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from num2words import CONVERTER_CLASSES

from crosslight.data import numbers
from crosslight.data.corpus import SCHEMA, LazyPairs
from crosslight.data.numbers import NumberPairs, say
from crosslight.errors import ConfigError

KINDS = ["number", "ordinal", "date", "amount", "time"]


def corpus(source_lang: str = "en", target_lang: str = "de", **changed: Any) -> NumberPairs:
    options: dict[str, Any] = {
        "kinds": KINDS,
        "largest": 999_999,
        "first_year": 1600,
        "last_year": 2099,
        "currencies": ["EUR", "USD"],
        "num_train": 400,
        "num_validation": 20,
        "num_test": 60,
        "seed": 1,
    }
    return NumberPairs(source_lang=source_lang, target_lang=target_lang, leaks="error", **{**options, **changed})


def read(source: LazyPairs) -> list[tuple[str, str]]:
    table = pa.Table.from_batches(source.chunks(), SCHEMA)
    return list(zip(table["source"].to_pylist(), table["target"].to_pylist(), strict=True))


def sets(data: NumberPairs) -> list[list[tuple[str, str]]]:
    return [read(data.training_pairs()), list(data.validation_pairs()), list(data.test_pairs()["numbers"])]


MARCH_21 = date(1984, 3, 21).toordinal()


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("number", (21,), {"en": "twenty-one", "de": "einundzwanzig", "fr": "vingt et un"}),
        ("ordinal", (3,), {"en": "third", "de": "dritte", "it": "terzo"}),
        ("amount", (21, "EUR"), {"en": "twenty-one euros", "de": "einundzwanzig Euro"}),
        ("amount", (1, "USD"), {"en": "one US dollar", "fr": "un dollar des États-Unis"}),
        ("date", (MARCH_21, "long"), {"sr": "dvadeset jedan mart jedna hiljada devetsto osamdeset četiri"}),
        ("amount", (21, "EUR"), {"kz": "жиырма бір еуро"}),
        ("time", (15 * 60 + 45,), {"en": "three:forty-five PM", "de": "fünfzehn:fünfundvierzig"}),
        ("time", (5,), {"en": "twelve:five AM", "de": "null:fünf"}),
        (
            "date",
            (MARCH_21, "full"),
            {
                "en": "Wednesday, March twenty-first, nineteen eighty-four",
                "de": "Mittwoch, einundzwanzigste März neunzehnhundertvierundachtzig",
                "es": "miércoles, veintiuno de marzo de mil novecientos ochenta y cuatro",
            },
        ),
        (
            "date",
            (MARCH_21, "long"),
            {
                "en": "March twenty-first, nineteen eighty-four",
                "ja": "千九百八十四年三月二十一日",
                "ko": "천구백팔십사년 3월 이십일일",
            },
        ),
    ],
)
def test_a_value_is_said_as_people_of_the_language_say_it(kind: Any, value: Any, words: dict[str, str]) -> None:
    assert {lang: say(kind, value, lang) for lang in words} == words


@pytest.mark.parametrize(
    ("source_lang", "target_lang", "kinds"),
    [("en", "de", ["number", "time"]), ("de", "vi", ["number", "ordinal"]), ("be", "en", ["number", "ordinal"])],
)
def test_no_text_of_a_held_out_side_occurs_in_training_or_twice(source_lang, target_lang, kinds) -> None:
    # Vietnamese ordinals and some Belarusian ones are said like numbers: two values, one text
    data = corpus(source_lang, target_lang, kinds=kinds, largest=2000, num_train=4000, num_validation=90, num_test=110)
    train, validation, test = sets(data)
    assert [len(pairs) for pairs in (train, validation, test)] == [4000, 90, 110]
    for side in 0, 1:
        held_out = [pair[side] for pair in validation + test]
        assert len(set(held_out)) == 200
        assert not set(held_out) & {pair[side] for pair in train}


def test_every_pair_says_one_value_on_both_sides() -> None:
    data = corpus(kinds=["number", "ordinal"], largest=300)
    answers = {say("number", (n,), "en"): say("number", (n,), "de") for n in range(301)}
    answers |= {say("ordinal", (n,), "en"): say("ordinal", (n,), "de") for n in range(1, 301)}
    pairs = [pair for part in sets(data) for pair in part]
    assert len(set(pairs)) > 100
    assert all(answers[source] == target for source, target in pairs)


def test_one_source_text_has_one_target_text() -> None:
    # some Belarusian ordinals are said like the number, two of them (70th, 80th) alike
    pairs = [
        pair
        for part in sets(corpus("be", "de", kinds=["number", "ordinal"], largest=99, num_validation=2, num_test=3))
        for pair in part
    ]
    assert len(dict(pairs)) == len(set(pairs))
    assert say("number", (50,), "be") == say("ordinal", (50,), "be") in dict(pairs)


@pytest.mark.parametrize("lang", ["vi", "ar"])
def test_ordinals_that_read_like_numbers_are_no_source(lang: str, caplog) -> None:
    with caplog.at_level(logging.INFO):
        pairs = read(corpus(lang, "de", kinds=["ordinal", "number"]).training_pairs())
    assert not any(target.endswith("te") for _, target in pairs)
    assert caplog.messages == [f"data.kinds: ordinal is left out: {lang} does not tell it from number"]
    assert any(source.endswith("th") for source, _ in read(corpus("en", lang).training_pairs()))


def test_kinds_are_equally_frequent_and_numbers_of_all_lengths_occur() -> None:
    train = read(corpus(num_train=3000).training_pairs())
    sources = [source for source, _ in train]
    times, amounts = (
        [s for s in sources if s.endswith(("AM", "PM"))],
        [s for s in sources if s.endswith(("euros", "dollars", "euro", "dollar"))],
    )
    assert 500 < len(times) < 700
    assert 500 < len(amounts) < 700
    lengths = dict.fromkeys((1, 2, 3), 0)
    values = {say("number", (n,), "en"): len(str(n)) for n in range(1000)}
    for source in sources:
        if source in values:
            lengths[values[source]] += 1
    thousands = sum("thousand" in source for source in sources)
    assert 5 < lengths[1] < lengths[2] < lengths[3] < thousands


def test_of_the_few_small_values_most_stay_in_training() -> None:
    data = corpus(kinds=["number"], largest=99, num_validation=5, num_test=10, num_train=2000)
    assert len(set(read(data.training_pairs()))) == 100 - 15
    with pytest.raises(
        ConfigError, match=r"data\.num_test: \d+ held-out .* only \d+ can be held out of number up to 99"
    ):
        corpus(kinds=["number"], largest=99, num_validation=1).test_pairs()


def test_the_seed_and_nothing_else_decides_the_data() -> None:
    first = sets(corpus(seed=4))
    data = corpus(seed=4)
    assert [data.test_pairs(), data.test_pairs()] == [corpus(seed=4).test_pairs()] * 2
    assert sets(data) == first, "in another order of asking"
    for one, other in zip(sets(corpus(seed=5)), first, strict=True):
        assert one != other
    assert read(corpus(seed=4, num_train=100).training_pairs()) == first[0][:100]


def test_another_process_with_another_hash_seed_makes_the_same_pairs_and_recipe() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from test_numbers import corpus; d = corpus(num_train=50); "
    code += "t = d.training_pairs(); print(t.fingerprint(), t.make().content_hash, d.validation_pairs().content_hash)"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code, os.path.dirname(__file__)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    data = corpus(num_train=50)
    here = [data.training_pairs().fingerprint(), data.training_pairs().make().content_hash]
    assert [answer.split() for answer in answers] == [[*here, data.validation_pairs().content_hash]]


def test_the_recipe_names_all_that_decides_the_text_and_reading_it_makes_nothing(monkeypatch) -> None:
    data = corpus()
    first = data.training_pairs()
    monkeypatch.setattr(numbers, "say", lambda *_: pytest.fail("nothing is said for a fingerprint"))
    assert data.training_pairs().fingerprint() == first.fingerprint()
    others = {
        "source_lang": "fr",
        "target_lang": "fr",
        "kinds": ["number"],
        "largest": 1000,
        "first_year": 1700,
        "last_year": 2000,
        "currencies": ["EUR"],
        "num_train": 401,
        "num_validation": 21,
        "num_test": 61,
        "seed": 2,
    }
    assert set(others) == set(asdict(data)) - {"leaks"}
    monkeypatch.undo()
    for key, value in others.items():
        assert replace(data, **{key: value}).training_pairs().fingerprint() != first.fingerprint(), key
    assert replace(data, leaks="drop").training_pairs().fingerprint() == first.fingerprint()
    monkeypatch.setattr(numbers, "version", lambda name: "9.9")
    assert data.training_pairs().fingerprint() != first.fingerprint()


@pytest.mark.parametrize("lang", sorted(CONVERTER_CLASSES))
def test_every_language_of_num2words_is_a_source_and_a_target(lang: str) -> None:
    for source, target in (lang, "de"), ("en", lang):
        data = corpus(source, target, num_train=60, num_test=15, num_validation=5)
        pairs = [pair for part in sets(data) for pair in part]
        assert len(pairs) == 80
        assert len(set(pairs)) > 40
        for text in sum(pairs, ()):
            assert text == " ".join(text.split()) != ""
            assert "None" not in text


def test_the_readme_size_is_held_out_quickly() -> None:
    corpus().test_pairs()
    start = time.perf_counter()
    corpus(num_validation=200, num_test=1000).test_pairs()
    assert time.perf_counter() - start < 3, "well above what it takes, so that a busy machine passes"


@pytest.mark.parametrize(
    ("lang", "left_out"),
    [("is", {"ordinal"}), ("tet", {"date", "amount", "time"}), ("cs", {"ordinal"})],
)
def test_a_kind_that_a_language_lacks_is_left_out_with_a_reason(lang: str, left_out: set[str], caplog) -> None:
    with caplog.at_level(logging.INFO):
        corpus("en", lang)
    assert {record.getMessage().split()[1] for record in caplog.records} == left_out
    assert all(f"{lang} lacks it (NotImplementedError" in record.getMessage() for record in caplog.records)
    with pytest.raises(ConfigError, match=rf"data\.kinds: en to {lang} has none of .*; add number"):
        corpus("en", lang, kinds=sorted(left_out))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"source_lang": "eng"}, r"data\.source_lang: num2words has no 'eng'; nearest are en"),
        ({"target_lang": "pt-BR"}, r"data\.target_lang: num2words has no 'pt-BR'; nearest are pt_BR"),
        ({"target_lang": "EN"}, r"data\.target_lang: num2words has no 'EN'; nearest are en"),
        ({"target_lang": "german"}, r"data\.target_lang: num2words has no 'german'; nearest are am, ar, az, .*\bde\b"),
        ({"largest": 8}, r"data\.largest: 8 is not from 9 to 999999999, which is the range for en"),
        ({"target_lang": "am", "largest": 10**6}, r"data\.largest: 1000000 is not from 9 to 999999, .* for am"),
        ({"kinds": ["numbers"]}, r"data\.kinds: \['numbers'\] must be some of number, ordinal, date, amount, time"),
        ({"kinds": []}, r"data\.kinds: \[\] must be some of number"),
        ({"first_year": 2100}, r"data: need 1 <= first_year=2100 <= last_year=2099 <= 9999"),
        ({"currencies": ["EURO"]}, r"data\.currencies: \['EURO'\] must be codes of ISO 4217 such as EUR"),
        ({"currencies": []}, r"data\.currencies: \[\] must be"),
    ],
)
def test_impossible_options_are_refused_by_name(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        corpus(**changed)
