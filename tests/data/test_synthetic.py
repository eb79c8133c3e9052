"""Copy, reverse and sort: seeded, right, and with held-out sets that never occur in training."""

import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest

from crosslight.data.corpus import Pairs, PairSource, read_pairs
from crosslight.data.synthetic import SyntheticPairs
from crosslight.errors import ConfigError

SIZES = {"num_symbols": 5, "min_length": 2, "max_length": 6, "num_train": 700, "num_validation": 30, "num_test": 50}


def corpus(task: str = "copy", **changed: Any) -> SyntheticPairs:
    common = {"source_lang": "x", "target_lang": "x", "leaks": "ignore", "seed": 1}
    return SyntheticPairs(task=task, **{**common, **SIZES, **changed})


def sets(data: SyntheticPairs) -> list[Pairs]:
    return [read_pairs(data.training_pairs()), data.validation_pairs(), data.test_pairs()[data.task]]


@pytest.mark.parametrize(
    ("task", "answer"),
    [("copy", lambda words: words), ("reverse", lambda words: words[::-1]), ("sort", lambda words: sorted(words))],
)
def test_every_target_is_the_right_answer_and_every_source_in_range(task, answer) -> None:
    parts = sets(corpus(task))
    assert [len(pairs) for pairs in parts] == [700, 30, 50]
    for source, target in (pair for pairs in parts for pair in pairs):
        assert target.split(" ") == answer(source.split(" "))
    words = [source.split(" ") for source in parts[0].source]
    assert {len(w) for w in words} == {2, 3, 4, 5, 6}
    assert {symbol for w in words for symbol in w} == set("01234")


def test_training_validation_and_test_share_no_source() -> None:
    train, validation, test = (set(pairs.source) for pairs in sets(corpus()))
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert (len(validation), len(test)) == (30, 50), "held-out sources are distinct"


def test_the_seed_and_nothing_else_decides_the_data() -> None:
    data = corpus(seed=4)
    first = [asdict(pairs) for pairs in sets(data)]
    assert [asdict(pairs) for pairs in sets(data)] == first, "asking twice changes nothing"
    assert [asdict(pairs) for pairs in sets(corpus(seed=4))] == first
    for one, other in zip(sets(corpus(seed=5)), first, strict=True):
        assert one.source != other["source"]
    assert read_pairs(corpus(seed=4, num_train=100).training_pairs()).source == first[0]["source"][:100]


def test_where_a_length_has_few_sources_most_of_them_stay_in_training() -> None:
    data = corpus(min_length=1, max_length=2, num_symbols=8, num_validation=9, num_test=9, num_train=2000)
    train, *held_out = sets(data)
    alone = [source for pairs in held_out for source in pairs.source if " " not in source]
    assert len(alone) <= 2
    assert len(set(train.source)) == 8 + 64 - 18


def test_the_fingerprint_of_the_training_pairs_is_a_function_of_every_setting() -> None:
    """It names prepared data, so a setting that it forgot would find the data of another task."""
    changes: list[dict[str, Any]] = [
        {"task": "sort"},
        {"num_symbols": 6},
        {"min_length": 3},
        {"max_length": 7},
        {"num_train": 701},
        {"num_validation": 31},
        {"num_test": 51},
        {"seed": 2},
    ]
    made = [corpus(**change).training_pairs().fingerprint() for change in [{}, *changes]]
    assert len(set(made)) == len(made)
    assert [corpus(**change).training_pairs().fingerprint() for change in [{}, *changes]] == made
    settings = set(asdict(corpus())) - {"source_lang", "target_lang", "leaks"}
    assert {key for change in changes for key in change} == settings, "a new setting needs a line here"


def test_the_fingerprint_is_the_same_in_every_process() -> None:
    """A hash with Python's salt, or of an object's address, would prepare the data anew in each run."""
    data = corpus()
    program = f"from crosslight.data.synthetic import SyntheticPairs; print({data!r}.training_pairs().fingerprint())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == data.training_pairs().fingerprint()


def test_nothing_is_generated_before_the_pairs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = corpus(num_train=10**12)
    monkeypatch.setattr(SyntheticPairs, "_drawn", lambda self, rng: pytest.fail("a sequence was drawn"))
    pairs = data.training_pairs()
    assert isinstance(pairs, PairSource)
    assert pairs.name == "copy train"
    assert len(pairs.fingerprint()) == 64
    assert [part.pairs.name for part in data.training_parts()] == ["copy train"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"min_length": 0}, r"min_length=0"),
        ({"min_length": 7}, r"min_length=7 <= max_length=6"),
        ({"max_length": 2}, r"data\.num_test: 80 held-out .* only 6 can be"),
    ],
)
def test_impossible_sizes_are_refused_by_name(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        corpus(**changed)
