"""Padded tensors from sequences of token ids."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from crosslight.batches import Batch
from crosslight.data.cleaning import EncodedPairs
from crosslight.shapes import Int, Tensor
from crosslight.tokenizers.base import Tokenizers


def pad(sequences: Sequence[NDArray[np.int32] | Sequence[int]], pad_id: int) -> Int[Tensor, "batch length"]:
    """The sequences as rows, filled up with `pad_id` on the right."""
    rows = np.full((len(sequences), max(map(len, sequences))), pad_id, np.int64)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(rows)


def collate(data: EncodedPairs, rows: NDArray[np.int64], tokenizers: Tokenizers, *, epoch: int, index: int) -> Batch:
    """The micro-batch of the given rows; without any row, a placeholder that weighs nothing.

    Its source has one token, for attention over nothing is a corner that kernels treat differently.
    """
    source_pad, target_pad, bos = tokenizers.source.pad_id, tokenizers.target.pad_id, tokenizers.target.bos_id
    if not len(rows):
        nothing, source = torch.tensor([[target_pad]]), torch.tensor([[tokenizers.source.eos_id]])
        return Batch(source, nothing, nothing, (), epoch=epoch, index=index)
    numbers = rows.tolist()
    targets = [data.target[i] for i in numbers]
    return Batch(
        source=pad([data.source[i] for i in numbers], source_pad),
        target_in=pad([[bos, *target[:-1].tolist()] for target in targets], target_pad),
        target_out=pad(targets, target_pad),
        sentence_ids=tuple(numbers),
        references=tuple(data.pairs.target[i] for i in numbers),
        epoch=epoch,
        index=index,
    )
