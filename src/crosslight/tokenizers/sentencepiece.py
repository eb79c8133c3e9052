"""SentencePiece subwords (Kudo and Richardson 2018), trained inside the run and cached by content."""

import hashlib
import io
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Literal

import pyarrow as pa
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as model_file

from crosslight.errors import ConfigError, DataError
from crosslight.tokenizers.base import Flat, LearningText, Sampling, Tokenizers, flattened
from crosslight.tokenizers.learning import SPACE, LinesToLearn, drawn
from crosslight.tokenizers.segmentation import Lattice, drop_merges
from crosslight.tokenizers.words import WordEncoder, word_by_word

log = logging.getLogger(__name__)


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
        return self._processor.encode([text.replace(SPACE, " ") for text in texts], num_threads=1)

    def encode_many(self, texts: pa.Array) -> Flat:
        return flattened(self.encode_batch(texts.to_pylist())) if self._words is None else self._words(texts)

    @cached_property
    def _words(self) -> WordEncoder | None:
        return WordEncoder(self._processor) if word_by_word(self._file) else None

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        if not ids:
            return []  # the library would give ""
        special = {self.pad_id, self.bos_id, self.eos_id}
        return self._processor.decode([[i for i in sequence if i not in special] for sequence in ids], num_threads=1)

    def symbol_id(self, symbol: str) -> int:
        number = self._processor.piece_to_id(symbol)
        if not self._processor.is_control(number):
            raise DataError(
                f"tokenizer: this model has no control symbol {symbol}; it was not trained for that language"
            )
        return number

    def sample(self, text: str, sampling: Sampling, seed: int) -> list[int]:
        """Words that hold an unknown character or a user symbol stay as they are."""
        draw, text = Random(seed), text.replace(SPACE, " ")
        if not self._is_bpe and sampling.nbest > 0:
            found = self._processor.nbest_encode(text, nbest_size=sampling.nbest)
            likelihoods = [sampling.alpha * sum(map(self._processor.get_score, ids)) for ids in found]
            weights = [math.exp(value - max(likelihoods)) for value in likelihoods]
            return draw.choices(found, weights)[0] if found else []
        ids = self._processor.encode(text)
        sampled: list[int] = []
        for word in _words(ids, self._starts_word):
            if all(i in self._texts for i in word):
                whole = "".join(self._texts[i] for i in word)
                sampled.extend(self._ordinary[piece][0] for piece in self._cut(whole, sampling.alpha, draw))
            else:
                sampled.extend(word)
        return sampled

    def _cut(self, word: str, alpha: float, draw: Random) -> list[str]:
        if self._is_bpe:
            return drop_merges(word, self._score, alpha, draw)
        if alpha not in self._lattices:
            self._lattices[alpha] = Lattice(self._score, alpha, max(map(len, self._ordinary)))
        return self._lattices[alpha](word, draw)

    def _score(self, piece: str) -> float | None:
        found = self._ordinary.get(piece)
        return found and found[1]

    @cached_property
    def _file(self) -> Any:
        return model_file.ModelProto.FromString(self._model)  # type: ignore[attr-defined]

    @cached_property
    def _lattices(self) -> dict[float, Lattice]:
        return {}

    @cached_property
    def _ordinary(self) -> dict[str, tuple[int, float]]:
        """The id and the score of each learnt piece; user symbols, which are never cut, are none."""
        return {p.piece: (i, p.score) for i, p in enumerate(self._file.pieces) if p.type == p.NORMAL}

    @cached_property
    def _texts(self) -> dict[int, str]:
        return {number: piece for piece, (number, _) in self._ordinary.items()}

    @cached_property
    def _starts_word(self) -> frozenset[int]:
        return frozenset(i for i in range(self.vocab_size) if self._processor.id_to_piece(i).startswith(SPACE))

    @cached_property
    def _is_bpe(self) -> bool:
        return self._file.trainer_spec.model_type == self._file.trainer_spec.BPE

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._processor.id_to_piece(int(i)) for i in ids]

    def to_bytes(self) -> bytes:
        return self._model


def _words(ids: list[int], first: frozenset[int]) -> Iterator[list[int]]:
    """The ids of each word; a word begins with one of `first`."""
    word: list[int] = []
    for number in ids:
        if number in first and word:
            yield word
            word = []
        word.append(number)
    if word:
        yield word


class SentencePieceRecipe:
    """Trains a model of `vocab_size` pieces (at most so many with `hard_vocab_limit=false`), one for each side or, with
    `joint=true`, one for both.

    It learns from all lines, or from `max_lines` drawn at random. Lines of more than `max_line_bytes` bytes are left
    out; if that is more than a tenth of all, it is an error. `user_symbols` are never cut; `unk_surface` is what an
    unknown piece becomes in a translation. `sampling_alpha` and `sampling_nbest` are those of `Sampling`. Trained
    models are kept in `cache` under a hash of the text and of every option, so the same corpus is learnt once.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        hard_vocab_limit: bool,
        model_type: Literal["bpe", "unigram"],
        joint: bool,
        character_coverage: float,
        normalization: str,
        byte_fallback: bool,
        user_symbols: list[str],
        unk_surface: str,
        max_lines: int,
        max_line_bytes: int,
        sampling_alpha: float | None,
        sampling_nbest: int,
        cache: str,
    ) -> None:
        if sampling_alpha is not None and model_type == "bpe" and not 0 < sampling_alpha < 1:
            raise ConfigError(f"tokenizer.sampling_alpha: {sampling_alpha} is no probability; BPE-dropout takes 0.1")
        if sampling_alpha is not None and not sampling_alpha >= 0:
            raise ConfigError(f"tokenizer.sampling_alpha: {sampling_alpha} prefers bad segmentations; Kudo takes 0.2")
        if sampling_nbest in (0, 1) or sampling_nbest < -1:
            raise ConfigError(
                f"tokenizer.sampling_nbest: {sampling_nbest} leaves no choice; take -1 (all) or 2 and more"
            )
        if vocab_size < 1:
            raise ConfigError(f"tokenizer.vocab_size: {vocab_size} is no number of pieces; a usual one is 32000")
        if max_lines < 1:
            raise ConfigError(f"tokenizer.max_lines: {max_lines} leaves nothing to learn from; a usual one is 5000000")
        if not 0.98 <= character_coverage <= 1:
            raise ConfigError(
                f"tokenizer.character_coverage: {character_coverage} is not between 0.98 and 1; "
                f"Chinese and Japanese take 0.9995, others 1"
            )
        for symbol in user_symbols:
            if symbol in ("", "<pad>", "<unk>", "<s>", "</s>") or user_symbols.count(symbol) > 1:
                raise ConfigError(
                    f"tokenizer.user_symbols: {symbol!r} is empty, taken or there twice; give it another name"
                )
        self.sampling = None if sampling_alpha is None else Sampling(sampling_alpha, sampling_nbest)
        self.joint, self.cache = joint, Path(cache).expanduser()
        self.max_lines, self.max_line_bytes = max_lines, max_line_bytes
        self.options: dict[str, Any] = {
            "vocab_size": vocab_size,
            "hard_vocab_limit": hard_vocab_limit,
            "model_type": model_type,
            "character_coverage": character_coverage,
            "normalization_rule_name": normalization,
            "byte_fallback": byte_fallback,
            "user_defined_symbols": user_symbols,
            "unk_surface": unk_surface,
            "max_sentence_length": max_line_bytes,
        }

    def fit(self, text: LearningText, control_symbols: Sequence[str]) -> Tokenizers:
        options = {**self.options, "control_symbols": list(control_symbols)}

        def model(*sides: str) -> SentencePieceTokenizer:
            facts = [sentencepiece.__version__, options, self.max_lines, text.fingerprint, sides]
            path = self.cache / f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]}.model"
            notes = path.with_suffix(".txt")  # kept, too: they concern every run with this model
            if not (path.exists() and notes.exists()):
                log.info("tokenizer: learning up to %d pieces from the training text", self.options["vocab_size"])
                lines = LinesToLearn(self.max_line_bytes, (line for side in sides for line in getattr(text, side)()))
                trained = self._train(lines, options)
                text.check_unchanged()
                self._keep(notes, "\n".join(lines.report()).encode())
                self._keep(path, trained)
            for note in notes.read_text(encoding="utf-8").splitlines():
                log.warning("%s", note)
            return SentencePieceTokenizer(path.read_bytes(), str(path))

        if self.joint:
            shared = model("source", "target")
            return Tokenizers(shared, shared, kind="sentencepiece")
        return Tokenizers(model("source"), model("target"), kind="sentencepiece")

    def _keep(self, path: Path, content: bytes) -> None:
        """Write a file into the cache under a temporary name and rename it: a reader sees it whole or not at all."""
        temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
        try:
            self.cache.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            temporary.replace(path)
        except OSError as error:
            raise DataError(
                f"cache: the tokenizer cannot be kept in {self.cache} ({error.strerror or error}); "
                f"make room or choose another folder with cache=FOLDER"
            ) from error

    def _train(self, lines: LinesToLearn, options: dict[str, Any]) -> bytes:
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(drawn(lines, self.max_lines)),
                model_writer=model,
                pad_id=0,
                unk_id=1,
                bos_id=2,
                eos_id=3,
                minloglevel=2,
                num_threads=16,  # a fixed number: how EM sums are split decides their last bits
                **options,
            )
        except (RuntimeError, OSError) as error:
            if lines.too_long < lines.read:
                lines.report()  # what was left out may be the reason
            raise self._explained(str(error), lines) from error
        lines.report()
        return model.getvalue()

    def _explained(self, message: str, lines: LinesToLearn) -> ConfigError | DataError:
        """The library's complaint in terms of our keys."""
        asked = self.options["vocab_size"]
        if lines.too_long and lines.read == lines.too_long:
            return lines.all_too_long()
        if not lines.with_text:
            return DataError(f"tokenizer: there is nothing to learn from; none of {lines.read} lines holds text")
        if found := re.search(r"Vocabulary size too high \(\d+\)\. Please set it to a value <= (\d+)", message):
            return ConfigError(
                f"tokenizer.vocab_size: {asked} is more than this corpus allows; the largest possible is {found[1]} "
                f"(tokenizer.hard_vocab_limit=false takes as many as there are)"
            )
        if found := re.search(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", message):
            return ConfigError(
                f"tokenizer.vocab_size: {asked} is too small for the characters of this corpus; the least is {found[1]}"
            )
        return ConfigError(f"tokenizer: SentencePiece could not be trained: {' '.join(message.split())}")
