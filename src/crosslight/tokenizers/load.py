"""Restore the tokenizers of a run from its folder; nothing in there can run code."""

import json
from collections.abc import Callable
from pathlib import Path

from crosslight.errors import DataError, RunError
from crosslight.tokenizers.base import Tokenizer, Tokenizers
from crosslight.tokenizers.integers import IntegerTokenizer
from crosslight.tokenizers.sentencepiece import SentencePieceTokenizer

KINDS: dict[str, Callable[[bytes], Tokenizer]] = {
    "integers": IntegerTokenizer.from_bytes,
    "sentencepiece": SentencePieceTokenizer,
}


def load_tokenizers(folder: Path) -> Tokenizers:
    """The tokenizers that `Tokenizers.save` wrote into `folder`; a RunError names a missing or damaged file."""
    try:
        description = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        make = KINDS[description["kind"]]
        source = make((folder / "source.model").read_bytes())
        target = source if description["joint"] else make((folder / "target.model").read_bytes())
        expected = description["sha256"]
    except (OSError, ValueError, KeyError, TypeError, DataError) as error:
        raise RunError(f"{folder}: no usable tokenizer in this run folder ({error})") from error
    tokenizers = Tokenizers(source, target, description["kind"])
    if tokenizers.content_hash != expected:
        raise RunError(f"{folder}: the tokenizer files do not match the hash in tokenizer.json; were they swapped?")
    return tokenizers
