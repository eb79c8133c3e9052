"""An evaluation without memory ends in a sentence."""

from typing import Any

import pytest
import torch
from texts import numbers

from crosslight.batches import Batch
from crosslight.decoding.greedy import GreedySearch
from crosslight.errors import RunError
from crosslight.losses import LabelSmoothedCrossEntropy
from crosslight.tasks.evaluation import Evaluation


class Full:
    """A model that has no memory for anything."""

    max_positions = None

    def encode(self, source: torch.Tensor) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")

    def decode(self, tokens: torch.Tensor, state: Any) -> Any:
        raise NotImplementedError


def test_the_sentence_names_the_batch_and_what_to_lower() -> None:
    tokenizer = numbers(5).target
    search = GreedySearch(length_penalty=0.6, length_offset=5.0, max_len_factor=1.0, max_len_extra=50)
    evaluation = Evaluation(Full(), LabelSmoothedCrossEntropy(0.0, tokenizer.pad_id), search, tokenizer, "de")
    tokens = torch.ones((2, 7), dtype=torch.long)
    with pytest.raises(RunError, match=r"^scoring 2 sentences of up to 7 tokens did .*GiB\); lower batching\.eval_"):
        evaluation.update(Batch(tokens, tokens, tokens, (0, 1), ("a", "b")))
