"""Text for tokenizers to learn from, and tokenizers that need no learning."""

import hashlib
from collections.abc import Sequence

from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.integers import IntegerTokenizer


class Text:
    """Lines in memory, as a `LearningText`."""

    def __init__(self, source: Sequence[str], target: Sequence[str] = ()) -> None:
        self._source, self._target = list(source), list(target)
        self.fingerprint = hashlib.sha256(repr((self._source, self._target)).encode()).hexdigest()

    def source(self) -> list[str]:
        return self._source

    def target(self) -> list[str]:
        return self._target

    def check_unchanged(self) -> None:
        """Lists in memory stay as they are."""


def numbers(num_symbols: int) -> Tokenizers:
    """Both sides share the symbols 0 … num_symbols - 1."""
    tokenizer = IntegerTokenizer(num_symbols)
    return Tokenizers(tokenizer, tokenizer, kind="integers")
