"""What training minimises: an objective scores one micro-batch under the model. Validation never asks it.

`conf/task/objective/*.yaml` chooses one; its arithmetic stands in `losses.py`.
"""

from typing import Protocol, runtime_checkable

from crosslight.batches import Batch
from crosslight.losses import TokenLoss
from crosslight.shapes import Float, Int, Tensor


@runtime_checkable
class Predictor(Protocol):
    """A model under teacher forcing: logits of the token after each of `target_in`."""

    def __call__(
        self, source: Int[Tensor, "batch source"], target_in: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocab"]: ...


@runtime_checkable
class Objective(Protocol):
    """Scores a micro-batch. Sums, not means; padding weighs nothing; `nll` is the plain one, for the curves."""

    def __call__(self, model: Predictor, batch: Batch) -> TokenLoss: ...
