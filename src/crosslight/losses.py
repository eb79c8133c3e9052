"""Losses as (total, count) pairs: sums over real target tokens, to be divided once by the count of a whole update."""

from dataclasses import dataclass

from torch import nn

from crosslight.errors import ConfigError
from crosslight.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class TokenLoss:
    """`total` is what is minimised and `nll` the plain negative log-likelihood, in nats, summed over `count` tokens."""

    total: Float[Tensor, ""]
    nll: Float[Tensor, ""]
    count: Int[Tensor, ""]


class LabelSmoothedCrossEntropy(nn.Module):
    """Cross-entropy against `(1 - smoothing)` on the reference and `smoothing / vocab` on every piece.

    Szegedy et al. 2016, section 7. Padded positions weigh nothing, whatever their logits, in value and gradient.
    """

    def __init__(self, smoothing: float, pad_id: int) -> None:
        super().__init__()
        if not 0 <= smoothing < 1:
            raise ConfigError(f"task.label_smoothing: {smoothing} is not in [0, 1)")
        self.smoothing, self.pad_id = smoothing, pad_id

    def forward(self, logits: Float[Tensor, "*shape vocab"], target: Int[Tensor, "*shape"]) -> TokenLoss:
        real = target != self.pad_id
        log_probs = logits[real].float().log_softmax(dim=-1)
        nll = -log_probs.gather(-1, target[real][:, None]).sum()
        total = nll
        if self.smoothing:
            total = (1 - self.smoothing) * nll - self.smoothing * log_probs.mean(dim=-1).sum()
        return TokenLoss(total, nll.detach(), real.sum())
