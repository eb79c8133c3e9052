"""R-Drop (Liang et al. 2021): two passes with different dropout shall predict the same."""

import torch

from crosslight.batches import Batch
from crosslight.errors import ConfigError
from crosslight.losses import LabelSmoothedCrossEntropy, TokenLoss, symmetric_divergence
from crosslight.objectives.base import Predictor


class RDrop:
    """`(CE₁ + CE₂) / 2 + alpha / 2 * (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁)) / 2` for two dropout passes of each sentence.

    This is half of the paper's equation 4, which adds the two cross-entropies up, as the authors' fairseq code does:
    the same minimum and the same `alpha`, and a loss that compares with plain cross-entropy's. Both passes are one
    forward of twice as many rows, so `model.layer_drop` skips the same layers in both. Each token counts once.
    """

    def __init__(self, *, alpha: float, label_smoothing: float, pad_id: int) -> None:
        if alpha < 0:
            raise ConfigError(f"task.objective.alpha: {alpha} is negative; give 0 or more")
        self.alpha, self.pad_id = alpha, pad_id
        self.loss = LabelSmoothedCrossEntropy(label_smoothing, pad_id)

    def __call__(self, model: Predictor, batch: Batch) -> TokenLoss:
        source, target_in, target_out = (torch.cat([t, t]) for t in (batch.source, batch.target_in, batch.target_out))
        logits = model(source, target_in)
        both = self.loss(logits, target_out)
        real = batch.target_out != self.pad_id
        first, second = logits.chunk(2)
        divergence = symmetric_divergence(first, second, real)
        return TokenLoss((both.total + self.alpha * divergence) / 2, both.nll / 2, real.sum())
