"""What every tokenizer can do, and the pair of them that a run uses.

Special ids always come from the tokenizer, never from a constant.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable


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

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text."""
        ...

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence; special ids leave no trace."""
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


@runtime_checkable
class TokenizerRecipe(Protocol):
    """A tokenizer before it has seen text: what `conf/tokenizer/*.yaml` describes."""

    def fit(self, source: Iterable[str], target: Iterable[str]) -> Tokenizers:
        """The tokenizers for a corpus: trained on it, if they need training."""
        ...
