"""Text for tokenizers to learn from, a recipe for those that learn, and tokenizers that need no learning."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.integers import IntegerTokenizer
from crosslight.tokenizers.sentencepiece import SentencePieceRecipe


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


def recipe(cache: Path, **changed: Any) -> SentencePieceRecipe:
    """A small BPE for both sides; `changed` are other settings than these."""
    settings: dict[str, Any] = {
        "vocab_size": 55,
        "hard_vocab_limit": True,
        "model_type": "bpe",
        "joint": True,
        "character_coverage": 1.0,
        "normalization": "nmt_nfkc",
        "byte_fallback": False,
        "user_symbols": [],
        "unk_surface": "⁇",
        "max_lines": 1000,
        "max_line_bytes": 4192,
        "sampling_alpha": None,
        "sampling_nbest": -1,
        "cache": str(cache),
    }
    return SentencePieceRecipe(**{**settings, **changed})
