"""Padded tensors from sequences of token ids."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from crosslight.batches import Batch
from crosslight.data.encoded import EncodedPairs
from crosslight.shapes import Int, Tensor
from crosslight.tokenizers.base import Sampling, Tokenizer, Tokenizers

Sequences = Sequence[NDArray[np.int32] | Sequence[int]]


def pad(sequences: Sequences, pad_id: int) -> Int[Tensor, "batch length"]:
    """The sequences as rows, filled up with `pad_id` on the right."""
    rows = np.full((len(sequences), max(map(len, sequences))), pad_id, np.int64)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(rows)


@dataclass(frozen=True)
class Resampled:
    """Segmentations that change from epoch to epoch: a function of seed, epoch and sentence, in whichever process.

    A segmentation of more than `max_len` pieces is not taken; the best one stands in for it. `tag_ids` are those of the
    control symbols that may stand before a source.
    """

    sampling: Sampling
    seed: int
    max_len: int
    tag_ids: frozenset[int]

    def __call__(
        self, tokenizer: Tokenizer, text: str, best: NDArray[np.int32], *, epoch: int, sentence: int, side: int
    ) -> Sequence[int] | NDArray[np.int32]:
        """The ids of one side; `best` are its ids as prepared."""
        name = f"{self.seed} {epoch} {sentence} {side}".encode()
        seed = int.from_bytes(hashlib.blake2b(name, digest_size=4).digest(), "little")
        ids = tokenizer.sample(text, self.sampling, seed)
        if len(ids) > self.max_len:
            return best
        return [*(i for i in best[:1].tolist() if i in self.tag_ids), *ids, tokenizer.eos_id]


def collate(
    data: EncodedPairs,
    rows: NDArray[np.int64],
    tokenizers: Tokenizers,
    *,
    epoch: int,
    index: int,
    resampled: Resampled | None = None,
) -> Batch:
    """The micro-batch of the given rows; without any row, a placeholder that weighs nothing.

    Its source has one token, for attention over nothing is a corner that kernels treat differently.
    """
    source_pad, target_pad, bos = tokenizers.source.pad_id, tokenizers.target.pad_id, tokenizers.target.bos_id
    if not len(rows):
        nothing, source = torch.tensor([[target_pad]]), torch.tensor([[tokenizers.source.eos_id]])
        return Batch(source, nothing, nothing, (), epoch=epoch, index=index)
    numbers = rows.tolist()
    names = numbers if data.sentence_ids is None else data.sentence_ids[rows].tolist()
    sources: Sequences = [data.source[i] for i in numbers]
    targets: Sequences = [data.target[i] for i in numbers]
    texts = [data.target_text[i] for i in numbers]
    if resampled:
        sources = [
            resampled(tokenizers.source, data.source_text[i], ids, epoch=epoch, sentence=name, side=0)  # type: ignore[arg-type]
            for name, i, ids in zip(names, numbers, sources, strict=True)
        ]
        targets = [
            resampled(tokenizers.target, text, ids, epoch=epoch, sentence=name, side=1)  # type: ignore[arg-type]
            for name, text, ids in zip(names, texts, targets, strict=True)
        ]
    target_out = pad(targets, target_pad)
    target_in = target_out.roll(1, dims=1)
    target_in[:, 0] = bos
    target_in[target_in == tokenizers.target.eos_id] = target_pad
    return Batch(
        source=pad(sources, source_pad),
        target_in=target_in,
        target_out=target_out,
        sentence_ids=tuple(names),
        references=tuple(texts),
        epoch=epoch,
        index=index,
    )
