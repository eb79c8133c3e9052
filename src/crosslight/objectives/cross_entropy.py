"""Maximum likelihood with label smoothing (Vaswani et al. 2017, section 5.4)."""

from crosslight.batches import Batch
from crosslight.losses import LabelSmoothedCrossEntropy, TokenLoss
from crosslight.objectives.base import Predictor
from crosslight.shapes import Tensor


class CrossEntropy:
    """The label-smoothed cross-entropy of the references."""

    def __init__(self, *, label_smoothing: float, pad_id: int) -> None:
        self.loss = LabelSmoothedCrossEntropy(label_smoothing, pad_id)

    def __call__(self, model: Predictor, batch: Batch) -> TokenLoss:
        def head(hidden: Tensor, weight: Tensor) -> TokenLoss:
            return self.loss.of_projection(hidden, weight, batch.target_out)

        loss: TokenLoss = model(batch.source, batch.target_in, head)
        return loss
