"""The likeliest tokens of each row and their log-probabilities, without a log-softmax over the vocabulary.

A search looks at a few tokens of each row. `topk` over a vocabulary visits it one number at a time; here the vocabulary
is cut into columns, whose maxima come fast, and only the best columns are searched. And the probability of the best
token alone tells the normaliser of all.
"""

import math

import torch

from crosslight.shapes import Float, Int, Tensor

PART = 2**20
"""So many numbers are exponentiated at a time."""

LANES = 16
"""The number of columns is a multiple of this, so that their maxima are found many at a time."""


def likeliest(
    logits: Float[Tensor, "row vocab"], count: int
) -> tuple[Float[Tensor, "row count"], Int[Tensor, "row count"]]:
    """Log-probabilities and ids of the `count` likeliest tokens of each row, the best first; float32."""
    best, ids = largest(logits, count)
    best, first = best.float(), ids[:, :1]
    # part by part: memory that is asked for in large blocks at each step comes without its pages each time
    size = max(1, PART // logits.shape[1])
    probabilities = [
        part.softmax(dim=-1, dtype=torch.float32).gather(1, column)
        for part, column in zip(logits.split(size), first.split(size), strict=True)
    ]
    return best - best[:, :1] + torch.cat(probabilities).log(), ids


def largest(
    values: Float[Tensor, "row vocab"], count: int
) -> tuple[Float[Tensor, "row count"], Int[Tensor, "row count"]]:
    """`values.topk(count, dim=1)`; of equal values it may choose others."""
    vocab = values.shape[1]
    height = max(1, round(math.sqrt(vocab / (4 * count))))  # about as much work in the columns as over them
    width = vocab // height // LANES * LANES
    if values.is_cuda or height < 8 or width < count:
        return values.topk(count, dim=1)
    # the largest `count` values of the grid lie in the `count` columns with the largest maxima
    grid = values[:, : height * width].unflatten(1, (height, width))
    columns = grid.amax(dim=1).topk(count, dim=1).indices
    ids = (columns[:, None, :] + torch.arange(0, height * width, width, device=values.device)[:, None]).flatten(1)
    if height * width < vocab:
        rest = torch.arange(height * width, vocab, device=values.device)
        ids = torch.cat([ids, rest.expand(len(values), -1)], dim=1)
    best, index = values.gather(1, ids).topk(count, dim=1)
    return best, ids.gather(1, index)


def only_end(
    log_probs: Float[Tensor, "row candidate"],
    ids: Int[Tensor, "row candidate"],
    logits: Float[Tensor, "row vocab"],
    rows: Int[Tensor, " chosen"],
    eos_id: int,
) -> tuple[Float[Tensor, "row candidate"], Int[Tensor, "row candidate"]]:
    """The candidates, where those of the given rows are EOS with its true log-probability and nothing else."""
    end = torch.full_like(log_probs[rows], -torch.inf)
    end[:, 0] = logits[rows].float().log_softmax(dim=-1)[:, eos_id]
    return log_probs.index_copy(0, rows, end), ids.index_fill(0, rows, eos_id)
