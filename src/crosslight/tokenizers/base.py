"""What every tokenizer can do, and the pair of them that a run uses.

Special ids always come from the tokenizer, never from a constant.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Flat:
    """Sequences of ids, one after the other in `values`; `lengths` says how many each has."""

    values: NDArray[np.int32]
    lengths: NDArray[np.int32]

    def select(self, rows: NDArray[np.bool_], limit: int | None = None) -> "Flat":
        """The sequences for which `rows` is True, each with at most its first `limit` ids."""
        lengths = self.lengths if limit is None else np.minimum(self.lengths, limit)
        begins = np.cumsum(self.lengths) - self.lengths
        place = np.arange(len(self.values)) - np.repeat(begins, self.lengths)
        wanted = np.where(rows, lengths, 0)
        return Flat(self.values[place < np.repeat(wanted, self.lengths)], lengths[rows])

    def replaced(self, rows: NDArray[np.int64], sequences: Sequence[Sequence[int]]) -> "Flat":
        """Other ids for some rows, which must rise."""
        ends, lengths, pieces, done = np.cumsum(self.lengths), self.lengths.copy(), [], 0
        for row, ids in zip(rows.tolist(), sequences, strict=True):
            pieces += [self.values[done : ends[row] - self.lengths[row]], np.asarray(ids, np.int32)]
            done, lengths[row] = ends[row], len(ids)
        return Flat(np.concatenate([*pieces, self.values[done:]]), lengths)


def flattened(sequences: Sequence[Sequence[int]]) -> Flat:
    """Lists of ids as two arrays."""
    lengths = np.fromiter(map(len, sequences), np.int32, len(sequences))
    return Flat(np.fromiter(chain.from_iterable(sequences), np.int32, int(lengths.sum())), lengths)


@runtime_checkable
class Tokenizer(Protocol):
    """Turns a line of text into ids without BOS or EOS, and back into detokenised text."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def pad_id(self) -> int: ...
    @property
    def bos_id(self) -> int: ...
    @property
    def eos_id(self) -> int: ...
    @property
    def unk_id(self) -> int | None:
        """None where everything can be encoded or is an error."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        ...

    def encode_many(self, texts: pa.Array) -> Flat:
        """The same ids, for very many texts; may be called by several threads at once."""
        ...

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence; special ids leave no trace."""
        ...

    def symbol_id(self, symbol: str) -> int:
        """The id of a control symbol such as `<2de>`, which no text is encoded to."""
        ...

    def sample(self, text: str, sampling: "Sampling", seed: int) -> list[int]:
        """One of the ways to cut a text into pieces, the same for the same seed in any process."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id stands for, to show on an axis."""
        ...

    def to_bytes(self) -> bytes:
        """The file that restores this tokenizer."""
        ...


@dataclass(frozen=True)
class Tokenizers:
    """The tokenizers of the two sides; the same object twice if they share one vocabulary."""

    source: Tokenizer
    target: Tokenizer
    kind: str

    @property
    def joint(self) -> bool:
        return self.source is self.target

    @property
    def content_hash(self) -> str:
        """sha256 over both files: a checkpoint keeps it and is refused with any other tokenizer."""
        digest = hashlib.sha256()
        for side in (self.source, self.target):
            digest.update(side.to_bytes())
        return digest.hexdigest()

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json` and one file a side (one in all if joint) into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "source.model").write_bytes(self.source.to_bytes())
        if not self.joint:
            (folder / "target.model").write_bytes(self.target.to_bytes())
        description = {"kind": self.kind, "joint": self.joint, "sha256": self.content_hash}
        (folder / "tokenizer.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Sampling:
    """Another segmentation of each training sentence in each epoch.

    For a unigram model (Kudo 2018) `alpha` smooths the choice among the `nbest` best segmentations (-1: all); for BPE
    it is the probability that a merge is left out (BPE-dropout, Provilkov et al. 2020) and `nbest` says nothing.
    """

    alpha: float
    nbest: int


@runtime_checkable
class LearningText(Protocol):
    """Training text that can be read again and again."""

    @property
    def fingerprint(self) -> str:
        """A hash of all that the lines depend on."""
        ...

    def source(self) -> Iterable[str]: ...
    def target(self) -> Iterable[str]: ...
    def check_unchanged(self) -> None:
        """A DataError if the lines are no more what the fingerprint says."""
        ...


@runtime_checkable
class TokenizerRecipe(Protocol):
    """A tokenizer before it has seen text: what `conf/tokenizer/*.yaml` describes."""

    @property
    def sampling(self) -> Sampling | None:
        """How training varies the segmentation; None: not at all."""
        ...

    def fit(self, text: LearningText, control_symbols: Sequence[str]) -> Tokenizers:
        """The tokenizers for a corpus, trained on it if they need training, with an id for each control symbol."""
        ...
