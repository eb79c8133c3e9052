"""A corpus: sentence pairs for training, validation and named tests, and how to make batches of them."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from crosslight.errors import DataError


@dataclass(frozen=True)
class Pairs:
    """Aligned sentences; `source[i]` translates to `target[i]`. `name` says where they are from."""

    name: str
    source: list[str]
    target: list[str]

    def __post_init__(self) -> None:
        if len(self.source) != len(self.target):
            raise DataError(
                f"{self.name}: {len(self.source)} source lines but {len(self.target)} target lines; "
                f"line i of one must translate line i of the other"
            )

    def __len__(self) -> int:
        return len(self.source)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.source, self.target, strict=True)

    @cached_property
    def content_hash(self) -> str:
        """sha256 over all lines of both sides."""
        digest = hashlib.sha256()
        for source, target in self:
            digest.update(f"{source}\n{target}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(kw_only=True)
class Corpus:
    """What every corpus has in its config; subclasses say where the pairs come from.

    `max_tokens` is the budget of one micro-batch in target tokens, padding included. `eval_max_tokens` is the same for
    validation and translation, in source tokens. Training pairs with more than `max_len` pieces on a side (EOS not
    counted) are left out and counted. `num_workers` loader processes prepare batches; 0 prepares them in line.
    """

    source_lang: str
    target_lang: str
    max_tokens: int
    eval_max_tokens: int
    max_len: int
    num_workers: int

    def training_pairs(self) -> Pairs:
        raise NotImplementedError

    def validation_pairs(self) -> Pairs:
        raise NotImplementedError

    def test_pairs(self) -> dict[str, Pairs]:
        """The test sets by name."""
        raise NotImplementedError
