"""Encoded pairs in Arrow tables give back what plain lists would, and over-long sides are cut with a warning each."""

import itertools
import logging

import numpy as np
import pyarrow as pa
import pytest
from texts import numbers

from crosslight.data.corpus import Pairs, arrow_text
from crosslight.data.encoded import SCHEMA, Column, EncodedPairs, encode_pairs, encode_side, encoded_batch, id_array
from crosslight.tokenizers.base import flattened
from crosslight.tokenizers.integers import EOS

TOKENIZERS = numbers(9)


def random_ids(rng: np.random.Generator, size: int) -> list[list[int]]:
    return [rng.integers(0, 2**31, length).tolist() for length in rng.integers(0, 5, size)]


def batch(first_row: int, source: list[list[int]], target: list[list[int]]) -> pa.RecordBatch:
    rows = np.arange(first_row, first_row + len(source))
    lines = [arrow_text([f"{side} {row}\u2028é" for row in rows]) for side in ("s", "t")]
    return encoded_batch(
        rows,
        pa.record_batch(lines, names=["source", "target"]),
        id_array(flattened(source)),
        id_array(flattened(target)),
    )


def as_lists(column: Column) -> list[list[int]]:
    return [column[i].tolist() for i in range(len(column))]


@pytest.mark.parametrize("last", [None, 0, 3])
@pytest.mark.parametrize("first", [None, 0, 7])
def test_an_array_of_ids_is_the_lists_with_their_ends(first: int | None, last: int | None) -> None:
    def expected(sequences: list[list[int]]) -> list[list[int]]:
        before, behind = ([] if end is None else [end] for end in (first, last))
        return [[*before, *ids, *behind] for ids in sequences]

    rng = np.random.default_rng(2)
    cases: list[list[list[int]]] = [
        [],
        [[]],
        [[], [], []],
        [[5]],
        [[2**31 - 1, 0], [], [4, 5, 6]],
        random_ids(rng, 200),
    ]
    for sequences in cases:
        array = id_array(flattened(sequences), first=first, last=last)
        array.validate(full=True)
        assert array.type == pa.list_(pa.int32())
        assert array.to_pylist() == expected(sequences)


def test_columns_over_many_batches_are_plain_lists() -> None:
    rng = np.random.default_rng(4)
    source: list[list[int]] = []
    target: list[list[int]] = []
    batches = []
    for size in (3, 1, 0, 17, 2, 0, 0, 64, 1):
        sides = random_ids(rng, size), random_ids(rng, size)
        batches.append(batch(len(source), *sides))
        source += sides[0]
        target += sides[1]
    data = EncodedPairs("toy", batches, "hash")
    assert len(data) == len(source) == 88
    assert as_lists(data.source) == source
    assert as_lists(data.target) == target
    assert data.source_lengths.tolist() == [len(ids) for ids in source]
    assert data.target_lengths.tolist() == [len(ids) for ids in target]
    assert [data.row[i] for i in range(88)] == list(range(88))
    assert [data.source_text[i] for i in range(88)] == [f"s {i}\u2028é" for i in range(88)]
    assert [data.target_text[i] for i in range(88)] == [f"t {i}\u2028é" for i in range(88)]
    assert data.parts == [88]


def test_filtered_and_sliced_batches_keep_their_rows() -> None:
    rng = np.random.default_rng(6)
    source, target = random_ids(rng, 40), random_ids(rng, 40)
    whole = batch(0, source, target)
    mask = rng.random(40) < 0.5
    data = EncodedPairs("toy", [whole.slice(7, 20), whole.filter(pa.array(mask))], "hash")
    rows = [*range(7, 27), *np.flatnonzero(mask).tolist()]
    assert [data.row[i] for i in range(len(data))] == rows
    assert as_lists(data.source) == [source[row] for row in rows]
    assert as_lists(data.target) == [target[row] for row in rows]
    assert data.source_lengths.tolist() == [len(source[row]) for row in rows]


def test_ids_are_views_not_copies() -> None:
    data = EncodedPairs("toy", [batch(0, [[1, 2], [3]], [[4], [5]])], "hash")
    assert np.shares_memory(data.source[0], data.source[0])
    assert data.source[0].dtype == data.source_lengths.dtype == np.int32


@pytest.mark.parametrize("index", [3, 100])
def test_a_row_behind_the_last_is_an_index_error(index: int) -> None:
    data = EncodedPairs("toy", [batch(0, [[1], [2]], [[3], [4]]), batch(2, [[5]], [[6]])], "hash")
    for column in (data.source, data.source_text, data.row):
        with pytest.raises(IndexError):
            column[index]


def test_no_batch_at_all_is_no_pair() -> None:
    data = EncodedPairs("none", [], "hash")
    assert len(data) == len(data.source_lengths) == 0
    assert data.source_lengths.dtype == np.int32


def test_both_sides_are_encoded_and_closed_by_eos() -> None:
    data = encode_pairs(Pairs("toy", ["1 2", ""], ["3", "4 5 6"]), TOKENIZERS)
    assert as_lists(data.source) == [[4, 5, EOS], [EOS]], "an empty side of a test set stays"
    assert as_lists(data.target) == [[6, EOS], [7, 8, 9, EOS]]
    assert [data.source_text[0], data.source_text[1]] == ["1 2", ""]
    assert len(encode_pairs(Pairs("none", [], []), TOKENIZERS)) == 0


def test_several_sets_are_one_after_the_other() -> None:
    first, second = Pairs("a", ["1", "2"], ["3", "4"], target_lang="de"), Pairs("b", ["5 5"], ["6"], target_lang="nl")
    data = encode_pairs([first, second], TOKENIZERS)
    alone = [encode_pairs(pairs, TOKENIZERS) for pairs in (first, second)]
    assert data.name == "a, b"
    assert as_lists(data.source) == list(itertools.chain.from_iterable(as_lists(each.source) for each in alone))
    assert (alone[0].target_lang, data.target_lang) == ("de", None)
    assert alone[0].content_hash == first.content_hash
    hashes = {data.content_hash, encode_pairs([second, first], TOKENIZERS).content_hash, alone[0].content_hash}
    assert len(hashes) == 3, "the order counts"


def test_the_text_of_a_set_keeps_what_was_cut_from_its_ids() -> None:
    data = encode_pairs(Pairs("toy", ["1 2 3 4"], ["5 6 7"]), TOKENIZERS, limit=3)
    assert as_lists(data.source) == [[4, 5, EOS]]
    assert as_lists(data.target) == [[8, 9, EOS]]
    assert data.source_text[0] == "1 2 3 4"
    assert data.target_text[0] == "5 6 7", "the reference is scored as it is"


def test_over_long_lines_lose_their_end_and_are_named(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["1 2 3", "1 2 3 4", "", "8 7 6 5 4 3"]
    encoded, cut = encode_side(TOKENIZERS.source, lines, 4, "input line", first=21)
    assert encoded == [[4, 5, 6, EOS], [4, 5, 6, EOS], [EOS], [11, 10, 9, EOS]]
    assert cut == 2
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "input line 22: cut from 4 pieces to 3"),
        (logging.WARNING, "input line 24: cut from 6 pieces to 3"),
    ]


@pytest.mark.parametrize("limit", [None, 7])
def test_without_a_limit_or_below_it_nothing_is_cut(limit: int | None, caplog: pytest.LogCaptureFixture) -> None:
    encoded, cut = encode_side(TOKENIZERS.source, ["1 2 3 4 5 6", "1"], limit, "x")
    assert [len(ids) for ids in encoded] == [7, 2]
    assert cut == 0
    assert not caplog.records


def test_both_sides_of_a_test_set_are_named(caplog: pytest.LogCaptureFixture) -> None:
    encode_pairs(Pairs("val.txt", ["1", "1 2 3"], ["1 2 3 4", "1"]), TOKENIZERS, limit=3)
    assert [record.getMessage() for record in caplog.records] == [
        "val.txt, source line 2: cut from 3 pieces to 2",
        "val.txt, target line 1: cut from 4 pieces to 2",
    ]


def test_names_of_columns_are_those_of_the_schema() -> None:
    assert SCHEMA.names == ["row", "source", "target", "source_ids", "target_ids"]
