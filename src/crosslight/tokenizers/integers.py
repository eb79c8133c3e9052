"""Symbols written as numbers, separated by spaces: the vocabulary of the synthetic tasks."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crosslight.errors import DataError
from crosslight.tokenizers.base import Flat, LearningText, Sampling, Tokenizers, flattened

PAD, BOS, EOS, NUM_SPECIAL = 0, 1, 2, 3


class IntegerTokenizer:
    """The symbol `s` (0 … num_symbols - 1) has id `s + 3`, after pad, BOS and EOS."""

    def __init__(self, num_symbols: int) -> None:
        self.num_symbols = num_symbols
        self.vocab_size = num_symbols + NUM_SPECIAL
        self.pad_id, self.bos_id, self.eos_id, self.unk_id = PAD, BOS, EOS, None
        self._ids = {str(symbol): symbol + NUM_SPECIAL for symbol in range(num_symbols)}

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._id(word) for word in text.split()] for text in texts]

    def encode_many(self, texts: pa.Array) -> Flat:
        words = pc.utf8_split_whitespace(texts)
        symbols = pc.index_in(words.flatten(), value_set=pa.array(list(self._ids)))
        if symbols.null_count:  # no symbol, which is refused by name, or a space too many
            return flattened(self.encode_batch(texts.to_pylist()))
        return Flat(
            symbols.to_numpy().astype(np.int32) + NUM_SPECIAL, pc.list_value_length(words).to_numpy().astype(np.int32)
        )

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(str(i - NUM_SPECIAL) for i in sequence if i >= NUM_SPECIAL) for sequence in ids]

    def symbol_id(self, symbol: str) -> int:
        raise DataError(f"{symbol}: a vocabulary of numbers has no control symbols; take a SentencePiece tokenizer")

    def sample(self, text: str, sampling: Sampling, seed: int) -> list[int]:
        """Numbers can be cut in one way only."""
        return self.encode_batch([text])[0]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [{PAD: "<pad>", BOS: "<s>", EOS: "</s>"}.get(i, str(i - NUM_SPECIAL)) for i in ids]

    def to_bytes(self) -> bytes:
        return f"{self.num_symbols}\n".encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "IntegerTokenizer":
        return cls(int(data))

    def _id(self, word: str) -> int:
        if (number := self._ids.get(word)) is None:
            raise DataError(f"{word!r} is not a symbol; this run knows the numbers 0 to {self.num_symbols - 1}")
        return number


class IntegerVocabulary:
    """The recipe: both sides share `num_symbols` symbols. There is nothing to train and nothing to sample."""

    sampling = None

    def __init__(self, *, num_symbols: int) -> None:
        self.num_symbols = num_symbols

    def fit(self, text: LearningText, control_symbols: Sequence[str]) -> Tokenizers:
        tokenizer = IntegerTokenizer(self.num_symbols)
        for symbol in control_symbols:
            tokenizer.symbol_id(symbol)
        return Tokenizers(tokenizer, tokenizer, kind="integers")
