"""The vocabulary of the synthetic tasks: symbols written as numbers."""

import pytest

from crosslight.errors import DataError
from crosslight.tokenizers.base import Tokenizer
from crosslight.tokenizers.integers import BOS, EOS, PAD, IntegerTokenizer, IntegerVocabulary


def test_symbols_follow_the_special_ids_and_come_back() -> None:
    tokenizer = IntegerTokenizer(12)
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.vocab_size == 15
    ids = tokenizer.encode_batch(["0 11  4", "", "7"])
    assert ids == [[3, 14, 7], [], [10]]
    assert tokenizer.decode_batch([[BOS, 3, 14, EOS, PAD], [EOS], [10]]) == ["0 11", "", "7"]
    assert tokenizer.pieces([BOS, 3, 14, EOS, PAD]) == ["<s>", "0", "11", "</s>", "<pad>"]


@pytest.mark.parametrize("word", ["12", "-1", "x", "1.0", "²", "٣", "1_0"])
def test_what_is_no_symbol_is_refused_by_name(word: str) -> None:
    with pytest.raises(DataError, match=rf"'{word}' is not a symbol; this run knows the numbers 0 to 11"):
        IntegerTokenizer(12).encode_batch(["3", f"4 {word} 5"])


def test_both_sides_share_the_vocabulary() -> None:
    tokenizers = IntegerVocabulary(num_symbols=5).fit(["0"], ["1"])
    assert tokenizers.joint
    assert tokenizers.source.vocab_size == 8
