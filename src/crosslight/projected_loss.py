"""Label-smoothed cross-entropy of an output projection, in chunks of rows that fit into the processor's cache.

The logits of a batch, rows times vocabulary, are by far its largest tensor. A chunk of them is made, turned into
probabilities and used for both gradients at once, then forgotten: nothing large is kept for the backward pass or
computed twice. (On GPUs the idea of Hsu et al. 2024, Liger Kernel.)
"""

from typing import Any

import torch

from crosslight.shapes import Bool, Float, Int, Tensor

CPU_LOGITS, GPU_LOGITS = 2**22, 2**27
"""How many logits a chunk may have: 16 MB, and half a gigabyte."""


def projected_sums(
    hidden: Float[Tensor, "row d_model"],
    weight: Float[Tensor, "vocab d_model"],
    target: Int[Tensor, " row"],
    real: Bool[Tensor, " row"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The smoothed loss and the plain negative log-likelihood, which has no gradient, summed over the rows in `real`.

    Under autocast the matrix products are of its type; softmax, sums and gradients of the weight are in float32.
    """
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        hidden, weight = (tensor.to(torch.get_autocast_dtype(device)) for tensor in (hidden, weight))
    total, nll = _ProjectedSums.apply(hidden, weight, target, real, smoothing)  # type: ignore[no-untyped-call]
    return total, nll


class _ProjectedSums(torch.autograd.Function):
    """With `p` the softmax of a row, `y` its reference and V pieces, the row costs `-(1 - ε) log p_y - ε mean(log p)`.

    The gradient by its logits is `p - ε / V`, less `1 - ε` at y. The terms with ε/V are the same for all pieces: of the
    loss and of both gradients they are left with sums over the weight's rows, which no chunk has to be walked over for.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, real: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(hidden.device.type, enabled=False):
            vocab = weight.shape[0]
            hidden = hidden.masked_fill(~real[:, None], 0.0)  # padding may hold anything
            uniform, column_sums = smoothing / vocab, weight.sum(dim=0, dtype=torch.float)
            of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float)
            log_p, mean_log_p = (torch.empty(len(hidden), device=hidden.device) for _ in range(2))
            rows = max(1, (CPU_LOGITS if hidden.device.type == "cpu" else GPU_LOGITS) // vocab)
            for start in range(0, len(hidden), rows):
                part = slice(start, start + rows)
                h, wanted = hidden[part], target[part, None]
                logits = h @ weight.T
                p = logits.softmax(dim=-1, dtype=torch.float)
                # not by the reference's p, which may be zero; the greatest is at least 1 / V
                log_sum = logits.amax(dim=-1).float() - p.amax(dim=-1).log()
                log_p[part] = logits.gather(-1, wanted)[:, 0].float() - log_sum
                mean_log_p[part] = (h.float() @ column_sums) / vocab - log_sum
                p.scatter_add_(-1, wanted, p.new_full(wanted.shape, smoothing - 1))
                p = p.to(h.dtype)
                torch.mm(p, weight, out=of_hidden[part])
                if p.dtype == torch.float:
                    of_weight.addmm_(p.T, h)
                else:
                    of_weight += p.T @ h
            of_hidden -= (uniform * column_sums).to(of_hidden.dtype)
            of_hidden.masked_fill_(~real[:, None], 0.0)
            of_weight -= uniform * hidden.sum(dim=0, dtype=torch.float)
        ctx.save_for_backward(of_hidden, of_weight)
        ctx.dtype = weight.dtype
        nll = -torch.where(real, log_p, 0.0).sum()
        total = (1 - smoothing) * nll - smoothing * torch.where(real, mean_log_p, 0.0).sum()
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, of_total: Tensor, of_nll: Tensor) -> tuple[Tensor, Tensor, None, None, None]:  # type: ignore[override]
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden * of_total, (of_weight * of_total).to(ctx.dtype), None, None, None
