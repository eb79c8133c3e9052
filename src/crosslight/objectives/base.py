"""What training minimises: an objective scores one micro-batch under the model. Validation never asks it.

`conf/task/objective/*.yaml` chooses one; its arithmetic stands in `losses.py`.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch.nn import functional

from crosslight.batches import Batch
from crosslight.losses import TokenLoss
from crosslight.shapes import Int, Tensor


@runtime_checkable
class Predictor(Protocol):
    """A model under teacher forcing: logits [batch, target, vocab] of the token after each of `target_in`.

    With another `head` what that makes of the last hidden states and the output projection's weight.
    """

    def __call__(
        self,
        source: Int[Tensor, "batch source"],
        target_in: Int[Tensor, "batch target"],
        head: Callable[[Tensor, Tensor], Any] = functional.linear,
    ) -> Any: ...


@runtime_checkable
class Objective(Protocol):
    """Scores a micro-batch. Sums, not means; padding weighs nothing; `nll` is the plain one, for the curves."""

    def __call__(self, model: Predictor, batch: Batch) -> TokenLoss: ...
