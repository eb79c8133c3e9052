"""Several corpora in one training: how much of each, which pairs in which epoch, and the tags for languages."""

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from crosslight.data.batching import plan_epoch, rows_of_epoch
from crosslight.data.corpus import Corpus, LazyPairs, Pairs
from crosslight.data.mixture import Mixture
from crosslight.errors import ConfigError, DataError


@dataclass(kw_only=True)
class Known(Corpus):
    """A corpus in memory."""

    leaks: str = "ignore"
    size: int = 3
    tests: list[str] = field(default_factory=lambda: ["news"])

    def _lines(self, kind: str, size: int) -> Pairs:
        lines = ([f"{kind} {lang} {number}" for number in range(size)] for lang in (self.source_lang, self.target_lang))
        return Pairs(f"{kind} of {self.source_lang}-{self.target_lang}", *lines)

    def training_pairs(self) -> Pairs:
        return self._lines("training", self.size)

    def validation_pairs(self) -> Pairs:
        return self._lines("validation", 2)

    def test_pairs(self) -> dict[str, Pairs]:
        return {name: self._lines(name, 1) for name in self.tests}


@dataclass(kw_only=True)
class Untouched(Known):
    """A corpus that must not be read to answer."""

    def training_pairs(self) -> Any:
        return LazyPairs("untouched", "untouched", lambda: pytest.fail("text was read"))


def german(**changed: Any) -> Known:
    return Known(source_lang="en", target_lang="de", **changed)


def french(**changed: Any) -> Known:
    return Known(source_lang="en", target_lang="fr", **changed)


def mixture(corpora: dict[str, Corpus], **changed: Any) -> Mixture:
    settings: dict[str, Any] = {"source_lang": "en", "target_lang": "de", "leaks": "warn"}
    settings |= {"weights": None, "temperature": 1.0, "tags": False}
    return Mixture(corpora=corpora, **{**settings, **changed})


def languages(**changed: Any) -> Mixture:
    return mixture({"europarl": german(size=4), "un": french(size=2)}, target_lang="mul", tags=True, **changed)


# what an epoch takes of each part


def test_temperature_one_takes_every_pair_once() -> None:
    assert mixture({"a": german(), "b": german()}).shares([30, 4]) is None
    assert Known(source_lang="en", target_lang="de").shares([30]) is None


@pytest.mark.parametrize(
    ("temperature", "sizes", "expected"),
    [
        # n^(1/T), worked out by hand: 100^(1/2) = 10 and 10000^(1/2) = 100; 32^(1/5) = 2, 243^(1/5) = 3, 1^(1/5) = 1
        (2, [100, 10_000], [10 / 110, 100 / 110]),
        (5, [32, 243, 1], [2 / 6, 3 / 6, 1 / 6]),
        (1.5, [27, 8], [9 / 13, 4 / 13]),
    ],
)
def test_a_temperature_takes_the_root_of_each_size(temperature: float, sizes: list[int], expected: list[float]) -> None:
    corpora = {str(number): german() for number in range(len(sizes))}
    shares = mixture(corpora, temperature=float(temperature)).shares(sizes)
    assert shares == pytest.approx(expected)


def test_the_higher_the_temperature_the_more_level_the_shares() -> None:
    corpora = {"large": german(), "small": german()}
    small = [mixture(corpora, temperature=t).shares([10_000, 10])[1] for t in (1.01, 2.0, 5.0, 100.0)]
    assert small == sorted(small)
    assert small[0] == pytest.approx(0.001, rel=0.1)
    assert small[-1] == pytest.approx(0.5, rel=0.05)


def test_weights_are_shares_by_name_whatever_the_sizes_or_the_order() -> None:
    corpora = {"a": german(), "b": german(), "c": german()}
    weighted = mixture(corpora, weights={"c": 1.0, "a": 3.0, "b": 0.0}, temperature=1.0)
    assert weighted.shares([7, 1000, 2]) == [0.75, 0, 0.25]


@pytest.mark.parametrize(
    ("sizes", "shares", "expected"),
    [
        ([60, 40], [0.6, 0.4], [60, 40]),
        ([90, 10], [0.75, 0.25], [75, 25]),
        ([90, 10], [0.25, 0.75], [25, 75]),
        ([50, 30, 20], [0.5, 0.0, 0.5], [50, 0, 50]),
    ],
)
def test_an_epoch_has_as_many_pairs_as_there_are_and_of_each_part_its_share(
    sizes: list[int], shares: list[float], expected: list[int]
) -> None:
    for epoch in (0, 1, 7):
        rows = rows_of_epoch(sizes, shares, seed=1, epoch=epoch)
        part = np.searchsorted(np.cumsum(sizes), rows, side="right")
        assert [int((part == number).sum()) for number in range(len(sizes))] == expected


def test_a_share_of_less_than_a_pair_an_epoch_is_not_forgotten() -> None:
    """Two low-resource pairs against 98: 0.3 of a pair an epoch is three in ten epochs."""
    rows = [rows_of_epoch([98, 2], [0.997, 0.003], seed=1, epoch=epoch) for epoch in range(10)]
    assert int((np.concatenate(rows) >= 98).sum()) == 3
    assert len(np.concatenate(rows)) == 1000


def test_a_weight_for_a_corpus_of_which_nothing_is_left_is_an_error() -> None:
    mixed = mixture({"a": german(), "b": german()}, weights={"a": 3.0, "b": 1.0})
    with pytest.raises(DataError, match=r"^data\.weights: b shall give 25\.0 % of each epoch, but has no pair"):
        mixed.shares([7, 0])
    assert mixture({"a": german(), "b": german()}, weights={"a": 3.0, "b": 0.0}).shares([7, 0]) == [1.0, 0.0]


def test_the_shares_of_a_real_mixture_give_epochs_of_the_right_size() -> None:
    sizes = [100, 10_000]
    rows = rows_of_epoch(sizes, mixture({"a": german(), "b": german()}, temperature=2.0).shares(sizes), seed=1, epoch=0)
    assert len(rows) == 10_100
    assert int((rows < 100).sum()) == round(10_100 * 10 / 110) == 918


# which pairs


@pytest.mark.parametrize("share", [0.31, 0.5, 0.07])
def test_over_many_epochs_every_pair_of_a_part_comes_equally_often(share: float) -> None:
    """Part two is sampled down (or up): all its pairs have come before one comes again, across the ends of epochs."""
    sizes, seen, drawn = [40, 60], Counter(range(40, 100)), []
    for epoch in range(12):
        rows = rows_of_epoch(sizes, [1 - share, share], seed=3, epoch=epoch)
        drawn += [row for row in rows.tolist() if row >= 40]
        seen.update(row for row in rows.tolist() if row >= 40)
        assert max(seen.values()) - min(seen.values()) <= 1, epoch
    passes = [drawn[start : start + 60] for start in range(0, len(drawn), 60)]
    assert all(len(set(one)) == len(one) for one in passes)
    assert len(passes) > 1
    assert all(one[: len(other)] != other for one, other in pairwise(passes)), "each pass has an order of its own"


def test_a_part_sampled_up_comes_whole_before_it_comes_again() -> None:
    rows = rows_of_epoch([90, 10], [0.66, 0.34], seed=1, epoch=0)
    counts = Counter(rows[rows >= 90].tolist())
    assert sorted(counts.values()) == [3] * 6 + [4] * 4
    assert max(Counter(rows[rows < 90].tolist()).values()) == 1


def test_the_rows_are_a_function_of_seed_and_epoch() -> None:
    def rows(seed: int, epoch: int) -> list[int]:
        return rows_of_epoch([40, 60], [0.7, 0.3], seed=seed, epoch=epoch).tolist()

    assert rows(1, 5) == rows(1, 5)
    assert len({tuple(rows(seed, epoch)) for seed in (1, 2) for epoch in (0, 1, 2)}) == 6


def test_parts_of_equal_size_are_not_drawn_in_step() -> None:
    rows = rows_of_epoch([50, 50], [0.5, 0.5], seed=1, epoch=0)
    assert (rows[:50] != rows[50:] - 50).any()


def test_the_batches_of_an_epoch_hold_just_its_rows_mixed() -> None:
    lengths = np.random.default_rng(0).integers(2, 9, 100).astype(np.int32)
    rows = rows_of_epoch([90, 10], [0.5, 0.5], seed=1, epoch=2)
    batches = plan_epoch(lengths, lengths, 80, seed=1, epoch=2, rows=rows)
    assert sorted(np.concatenate(batches).tolist()) == sorted(rows.tolist())
    assert sum(bool((b < 90).any() and (b >= 90).any()) for b in batches) > len(batches) / 2


# parts, tags, languages


def test_parts_keep_the_order_the_names_and_the_languages_of_their_corpora() -> None:
    parts = languages().training_parts()
    assert [(p.name, p.source_lang, p.target_lang, p.tag) for p in parts] == [
        ("europarl", "en", "de", "<2de>"),
        ("un", "en", "fr", "<2fr>"),
    ]
    texts = [[pair for chunk in p.pairs.chunks() for pair in chunk.to_pylist()] for p in parts]
    assert [len(text) for text in texts] == [4, 2]
    assert texts[1][1] == {"source": "training en 1", "target": "training fr 1"}


def test_every_set_carries_the_tag_and_the_language_of_its_corpus() -> None:
    mixed = languages()
    assert [(s.target_lang, s.tag, len(s), s.target[0]) for s in mixed.validation_sets()] == [
        ("de", "<2de>", 2, "validation de 0"),
        ("fr", "<2fr>", 2, "validation fr 0"),
    ]
    tests = mixed.test_pairs()
    assert {name: (s.target_lang, s.tag) for name, s in tests.items()} == {
        "europarl_news": ("de", "<2de>"),
        "un_news": ("fr", "<2fr>"),
    }
    assert tests["un_news"].target == ["news fr 0"]


def test_without_tags_nothing_is_tagged() -> None:
    mixed = mixture({"a": german(), "b": german(tests=["x", "y"])})
    assert mixed.target_tags() == {}
    assert [p.tag for p in mixed.training_parts()] == [None, None]
    assert [s.tag for s in (*mixed.validation_sets(), *mixed.test_pairs().values())] == [None] * 5
    assert list(mixed.test_pairs()) == ["a_news", "b_x", "b_y"]


def test_the_tags_are_known_without_reading_text() -> None:
    corpora = {lang: Untouched(source_lang="en", target_lang=lang) for lang in ("de", "fr", "cs")}
    mixed = mixture({**corpora, "more": german()}, target_lang="mul", tags=True)
    assert mixed.target_tags() == {"de": "<2de>", "fr": "<2fr>", "cs": "<2cs>"}
    assert len(mixed.training_parts()) == 4


def test_several_sources_need_no_tag() -> None:
    both = {"a": german(), "b": Known(source_lang="fr", target_lang="de")}
    assert mixture(both, source_lang="mul").target_tags() == {}


@pytest.mark.parametrize(
    ("corpora", "changed", "message"),
    [
        ({}, {}, "data.corpora: nothing to mix; see the example in conf/data/mixture.yaml"),
        (
            {"a": german()},
            {"temperature": 0.5},
            "data.temperature: 0.5 would starve small corpora; 1 is by size, 5 levels",
        ),
        (
            {"a": german(), "b": german()},
            {"weights": {"a": 1.0, "c": 2.0}},
            "data.weights: names a, c, but the corpora are a, b",
        ),
        ({"a": german()}, {"weights": {}}, "data.weights: names , but the corpora are a"),
        (
            {"a": german(), "b": german()},
            {"weights": {"a": 1.0, "b": -2.0}},
            "data.weights: {'a': 1.0, 'b': -2.0} are no shares",
        ),
        ({"a": german()}, {"weights": {"a": 0.0}}, "data.weights: {'a': 0.0} are no shares"),
        ({"a": german()}, {"source_lang": "fr"}, "data.source_lang: 'fr', but the corpora give 'en'"),
        ({"a": german(), "b": french()}, {"tags": True}, "data.target_lang: 'de', but the corpora give 'mul'"),
        (
            {"a": german(), "b": french()},
            {"target_lang": "mul"},
            "data.tags: with several target languages each source needs its tag; set data.tags=true",
        ),
        (
            {"a": german(), "b": languages()},
            {"target_lang": "mul", "tags": True},
            "data.corpora.b: a mixture cannot be",
        ),
    ],
)
def test_a_mixture_that_cannot_be_is_refused_in_one_sentence(
    corpora: dict[str, Corpus], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        mixture(corpora, **changed)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_two_test_sets_never_share_a_name() -> None:
    """`wmt` with a set `14_news` and `wmt_14` with a set `news` would both be `wmt_14_news`, and one would be lost."""
    with pytest.raises(ConfigError, match=r"^data\.corpora: .*wmt_14_news"):
        mixture({"wmt": german(tests=["14_news"]), "wmt_14": german(tests=["news"])}).test_pairs()


def test_tags_are_plain_text_in_a_record() -> None:
    assert json.loads(json.dumps(languages().target_tags())) == {"de": "<2de>", "fr": "<2fr>"}
