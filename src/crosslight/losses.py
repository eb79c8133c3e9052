"""Losses as (total, count) pairs: sums over real target tokens, to be divided once by the count of a whole update."""

from dataclasses import dataclass

import torch
from torch import nn

from crosslight.errors import ConfigError
from crosslight.projected_loss import projected_sums
from crosslight.shapes import Bool, Float, Int, Tensor


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
            raise ConfigError(f"task.objective.label_smoothing: {smoothing} is not in [0, 1)")
        self.smoothing, self.pad_id = smoothing, pad_id

    def forward(self, logits: Float[Tensor, "*shape vocab"], target: Int[Tensor, "*shape"]) -> TokenLoss:
        real = target != self.pad_id
        log_probs = _log_probs(logits, real)
        nll = total = -torch.where(real, log_probs.gather(-1, target[..., None])[..., 0], 0.0).sum()
        if self.smoothing:
            uniform = -torch.where(real, log_probs.mean(dim=-1), 0.0).sum()
            total = (1 - self.smoothing) * nll + self.smoothing * uniform
        return TokenLoss(total, nll.detach(), real.sum())

    def of_projection(
        self,
        hidden: Float[Tensor, "*shape d_model"],
        weight: Float[Tensor, "vocab d_model"],
        target: Int[Tensor, "*shape"],
    ) -> TokenLoss:
        """The same for the logits `hidden · weightᵀ`, which are never held all at once."""
        real = target != self.pad_id
        wanted = target.flatten()
        total, nll = projected_sums(hidden.flatten(0, -2), weight, wanted, real.flatten(), self.smoothing)
        return TokenLoss(total, nll, real.sum())


def symmetric_divergence(
    one: Float[Tensor, "*shape vocab"], other: Float[Tensor, "*shape vocab"], real: Bool[Tensor, "*shape"]
) -> Float[Tensor, ""]:
    """`(KL(p ‖ q) + KL(q ‖ p)) / 2` of the two predictions at each position that `real` marks, in nats, summed."""
    log_p, log_q = _log_probs(one, real), _log_probs(other, real)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum() / 2


def cross_entropy_with(
    teacher: Float[Tensor, "*shape vocab"],
    student: Float[Tensor, "*shape vocab"],
    real: Bool[Tensor, "*shape"],
    *,
    temperature: float,
) -> Float[Tensor, ""]:
    """`-Σ q log p` at each position that `real` marks, in nats, summed.

    `q` is the softmax of the teacher's logits divided by the temperature, `p` that of the student's as they are.
    """
    wanted = (_at_real(teacher, real) / temperature).softmax(dim=-1)
    rows = (wanted * _log_probs(student, real)).sum(dim=-1)
    return -torch.where(real, rows, 0.0).sum()


def _log_probs(logits: Tensor, real: Tensor) -> Tensor:
    return _at_real(logits, real).log_softmax(dim=-1)


def _at_real(logits: Tensor, real: Tensor) -> Tensor:
    """The logits in float32; zeros at padding, where they may be anything and get no gradient."""
    return logits.float().masked_fill(~real[..., None], 0.0)
