"""Encoding pairs, leaving out unfit ones in pairs (case A13), and the compact store of sequences."""

import numpy as np
import pytest

from crosslight.data.cleaning import EncodedPairs, clean, encode_pairs
from crosslight.data.corpus import Pairs
from crosslight.data.ragged import Ragged
from crosslight.errors import DataError
from crosslight.tokenizers.integers import EOS, IntegerVocabulary

TOKENIZERS = IntegerVocabulary(num_symbols=9).fit([], [])


def encoded(*pairs: tuple[str, str]) -> EncodedPairs:
    return encode_pairs(Pairs("toy", [s for s, _ in pairs], [t for _, t in pairs]), TOKENIZERS)


def rows(side: Ragged) -> list[list[int]]:
    return [side[i].tolist() for i in range(len(side))]


def test_ragged_gives_back_every_sequence() -> None:
    sequences = [[5, 6, 7], [], [8], [], [2**31 - 1, 0]]
    ragged = Ragged(sequences)
    assert rows(ragged) == sequences
    assert ragged.lengths.tolist() == [3, 0, 1, 0, 2]
    assert ragged[0].dtype == np.int32
    assert len(Ragged([])) == 0


def test_both_sides_are_encoded_and_closed_by_eos() -> None:
    data = encoded(("1 2", "3"), ("", "4 5 6"))
    assert rows(data.source) == [[4, 5, EOS], [EOS]]
    assert rows(data.target) == [[6, EOS], [7, 8, 9, EOS]]
    assert len(data) == 2


def test_pairs_leave_together_and_are_counted() -> None:
    long = " ".join("1" * 5)
    data = encoded(("1", "2"), ("3", ""), ("", "4"), ("", ""), (long, "5"), ("6", long), ("", long), ("1 1 1 1", "7"))
    kept, left_out = clean(data, max_len=4)
    assert list(kept.pairs) == [("1", "2"), ("1 1 1 1", "7")]
    assert rows(kept.source) == [[4, EOS], [4, 4, 4, 4, EOS]]
    assert rows(kept.target) == [[5, EOS], [10, EOS]]
    assert left_out == {"empty": 4, "too long": 2}
    assert len(data) == 8, "the pairs that were handed in are as they were"


def test_fit_pairs_all_stay() -> None:
    data = encoded(("1", "2"), ("3 4", "5"))
    kept, left_out = clean(data, max_len=2)
    assert list(kept.pairs) == list(data.pairs)
    assert left_out == {"empty": 0, "too long": 0}


def test_a_corpus_without_any_fit_pair_is_refused_with_the_reasons() -> None:
    with pytest.raises(DataError, match=r"toy: no training pair is left of 3 \(2 empty, 1 longer than data\.max_len=1"):
        clean(encoded(("", "1"), ("2", ""), ("3 4", "5")), max_len=1)
