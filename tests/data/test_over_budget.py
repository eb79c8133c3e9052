"""Sentences above the token budget are named before training (case D04)."""

import pytest
from texts import numbers

from crosslight.data.corpus import Pairs
from crosslight.data.encoded import encode_pairs
from crosslight.data.report import NAMED, warn_of_over_budget


def test_each_is_named_by_line_and_length(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["1", "2 " * 59, "3", "4 5"]
    data = encode_pairs([Pairs("one", lines, lines[::-1]), Pairs("two", ["7 " * 70], ["8"])], numbers(10))
    warn_of_over_budget(data, 50, "batching.max_tokens")
    assert [record.getMessage() for record in caplog.records] == [
        "one, two: 3 sentences are longer than batching.max_tokens=50 and make a batch each: "
        "line 2 (60 pieces), line 3 (60 pieces), line 1 (71 pieces)"
    ]


def test_many_are_counted_and_the_first_named(caplog: pytest.LogCaptureFixture) -> None:
    data = encode_pairs(Pairs("toy", ["1 2 3"] * 9, ["1"] * 9), numbers(10))
    warn_of_over_budget(data, 3, "batching.eval_max_tokens")
    (record,) = caplog.records
    assert "toy: 9 sentences are longer than batching.eval_max_tokens=3" in record.getMessage()
    assert record.getMessage().count("line ") == NAMED
    assert record.getMessage().endswith(", …")


def test_a_sentence_of_just_the_budget_is_no_matter(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_over_budget(encode_pairs(Pairs("toy", ["1 2 3"], ["1"]), numbers(10)), 4, "batching.max_tokens")
    assert not caplog.records
