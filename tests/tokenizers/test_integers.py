"""The vocabulary of the synthetic tasks: symbols written as numbers."""

import pytest
from texts import Text, numbers

from crosslight.errors import DataError
from crosslight.tokenizers.base import Sampling, Tokenizer, TokenizerRecipe
from crosslight.tokenizers.integers import BOS, EOS, PAD, IntegerTokenizer, IntegerVocabulary


def test_symbols_follow_the_special_ids_and_come_back() -> None:
    tokenizer = IntegerTokenizer(12)
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.vocab_size == 15
    ids = tokenizer.encode_batch(["0 11  4", "", "7"])
    assert ids == [[3, 14, 7], [], [10]]
    assert tokenizer.decode_batch([[BOS, 3, 14, EOS, PAD], [EOS], [10]]) == ["0 11", "", "7"]
    assert tokenizer.pieces([BOS, 3, 14, EOS, PAD]) == ["<s>", "0", "11", "</s>", "<pad>"]


@pytest.mark.parametrize("word", ["12", "-1", "x", "1.0", "²", "٣", "1_0", "07", "9" * 5000], ids=lambda word: word[:5])
def test_what_is_no_symbol_is_refused_by_name(word: str) -> None:
    with pytest.raises(DataError, match=rf"'{word}' is not a symbol; this run knows the numbers 0 to 11"):
        IntegerTokenizer(12).encode_batch(["3", f"4 {word} 5"])


def test_both_sides_share_the_vocabulary() -> None:
    recipe = IntegerVocabulary(num_symbols=5)
    assert isinstance(recipe, TokenizerRecipe)
    tokenizers = recipe.fit(Text(["0"], ["1"]), [])
    assert tokenizers.joint
    assert tokenizers.source.vocab_size == 8
    assert tokenizers.content_hash == numbers(5).content_hash != numbers(6).content_hash


def test_numbers_are_learnt_from_nothing() -> None:
    class Untouched(Text):
        def source(self) -> list[str]:
            pytest.fail("text was read")

        target = source

    IntegerVocabulary(num_symbols=5).fit(Untouched([]), [])


def test_languages_need_another_vocabulary() -> None:
    with pytest.raises(DataError) as error:
        IntegerVocabulary(num_symbols=5).fit(Text([]), ["<2de>"])
    assert str(error.value).startswith("<2de>: a vocabulary of numbers has no control symbols; take a SentencePiece")


def test_there_is_one_way_only_to_cut_numbers() -> None:
    assert IntegerVocabulary(num_symbols=12).sampling is None
    tokenizer = IntegerTokenizer(12)
    assert {tuple(tokenizer.sample("0 11 4", Sampling(0.5, -1), seed)) for seed in range(9)} == {(3, 14, 7)}
