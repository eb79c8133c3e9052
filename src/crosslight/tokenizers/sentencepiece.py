"""SentencePiece subwords (Kudo and Richardson 2018), trained inside the run and cached by content."""

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import sentencepiece

from crosslight.errors import ConfigError, DataError
from crosslight.tokenizers.base import Tokenizers


class SentencePieceTokenizer:
    """A trained model. All special ids are read from its file; one without pad, BOS or EOS is refused."""

    def __init__(self, model: bytes, name: str = "tokenizer") -> None:
        self._model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise DataError(f"{name}: this is no SentencePiece model ({error})") from error
        self.vocab_size = self._processor.vocab_size()
        self.pad_id, self.bos_id = self._processor.pad_id(), self._processor.bos_id()
        self.eos_id, self.unk_id = self._processor.eos_id(), self._processor.unk_id()
        ids = {"pad": self.pad_id, "bos": self.bos_id, "eos": self.eos_id}
        missing = [key for key, value in ids.items() if value < 0]
        if missing:
            flags = " ".join(f"--{key}_id=N" for key in missing)
            raise DataError(
                f"{name}: the SentencePiece model has no {' and no '.join(missing)} id; train it with {flags}"
            )
        if len({*ids.values(), self.unk_id}) < 4:
            raise DataError(f"{name}: special ids must differ, but are {ids | {'unk': self.unk_id}}")

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self._processor.encode(list(texts), num_threads=1)

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        if not ids:
            return []  # the library would give ""
        special = {self.pad_id, self.bos_id, self.eos_id}
        return self._processor.decode([[i for i in sequence if i not in special] for sequence in ids], num_threads=1)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def to_bytes(self) -> bytes:
        return self._model


class SentencePieceRecipe:
    """Trains a model of `vocab_size` pieces; `joint=true` makes one for both sides.

    Trained models are kept in `cache` under a hash of the text and of every option, so the same corpus is learnt once.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        model_type: Literal["bpe", "unigram"],
        joint: bool,
        character_coverage: float,
        normalization: str,
        byte_fallback: bool,
        cache: str,
    ) -> None:
        self.joint, self.cache = joint, Path(cache).expanduser()
        self.options: dict[str, Any] = {
            "vocab_size": vocab_size,
            "model_type": model_type,
            "character_coverage": character_coverage,
            "normalization_rule_name": normalization,
            "byte_fallback": byte_fallback,
        }

    def fit(self, source: Iterable[str], target: Iterable[str]) -> Tokenizers:
        if self.joint:
            shared = self._model([*source, *target])
            return Tokenizers(shared, shared, kind="sentencepiece")
        return Tokenizers(self._model(list(source)), self._model(list(target)), kind="sentencepiece")

    def _model(self, lines: list[str]) -> SentencePieceTokenizer:
        digest = hashlib.sha256(json.dumps([sentencepiece.__version__, self.options]).encode())
        for line in lines:
            digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
        path = self.cache / f"{digest.hexdigest()[:32]}.model"
        if not path.exists():
            model = self._train(lines)
            self.cache.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(f".tmp{os.getpid()}")
            temporary.write_bytes(model)
            temporary.replace(path)
        return SentencePieceTokenizer(path.read_bytes(), str(path))

    def _train(self, lines: list[str]) -> bytes:
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                pad_id=0,
                unk_id=1,
                bos_id=2,
                eos_id=3,
                unk_surface="⁇",
                minloglevel=2,
                num_threads=16,  # a fixed number: how EM sums are split decides their last bits
                **self.options,
            )
        except (RuntimeError, OSError) as error:
            raise self._explained(str(error)) from error
        return model.getvalue()

    def _explained(self, message: str) -> ConfigError:
        """The library's complaint in terms of our keys."""
        asked = self.options["vocab_size"]
        if found := re.search(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)", message):
            return ConfigError(
                f"tokenizer.vocab_size: {asked} is more than this corpus allows; the largest possible is {found[1]}"
            )
        if found := re.search(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", message):
            return ConfigError(
                f"tokenizer.vocab_size: {asked} is too small for the characters of this corpus; the least is {found[1]}"
            )
        return ConfigError(f"tokenizer: SentencePiece could not be trained: {message}")
