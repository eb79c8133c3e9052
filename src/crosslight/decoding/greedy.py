"""Greedy search: the likeliest token at each step."""

import torch

from crosslight.decoding.protocols import Hypothesis, State, Step
from crosslight.decoding.scores import length_penalty, max_lengths, only
from crosslight.shapes import Int, Tensor


class GreedySearch:
    """Takes the best token until EOS; at its greatest length a translation must end. Finished rows leave the batch."""

    def __init__(
        self, *, length_penalty: float, length_offset: float, max_len_factor: float, max_len_extra: int
    ) -> None:
        self.alpha, self.offset = length_penalty, length_offset
        self.factor, self.extra = max_len_factor, max_len_extra

    def max_lengths(self, source_lengths: Int[Tensor, " row"], limit: int | None) -> Int[Tensor, " row"]:
        return max_lengths(source_lengths, self.factor, self.extra, limit)

    @torch.no_grad()
    def __call__(
        self, step: Step, state: State, *, bos_id: int, eos_id: int, max_lengths: Int[Tensor, " row"]
    ) -> list[list[Hypothesis]]:
        device, num_rows = max_lengths.device, state.num_rows
        found: list[list[Hypothesis]] = [[] for _ in range(num_rows)]
        row_of = torch.arange(num_rows, device=device)  # which sentence each remaining row belongs to
        tokens = torch.full((num_rows, 1), bos_id, device=device)
        history = torch.empty((num_rows, 0), dtype=torch.long, device=device)
        totals = torch.zeros(num_rows, device=device)
        while len(row_of):
            logits, state = step(tokens, state)
            log_probs = logits[:, -1].float().log_softmax(dim=-1)
            must_end = history.shape[1] + 1 >= max_lengths[row_of]
            log_probs = torch.where(must_end[:, None], only(eos_id, log_probs), log_probs)
            best, choice = log_probs.max(dim=-1)
            choice = choice.masked_fill(must_end, eos_id)  # also where EOS is impossible or a diverged model says NaN
            totals = totals + best
            history = torch.cat([history, choice[:, None]], dim=1)
            ended = choice == eos_id
            if ended.any():
                divisor = length_penalty(history.shape[1], self.alpha, self.offset)
                ids, sums, owners = history[ended, :-1].tolist(), totals[ended].tolist(), row_of[ended].tolist()
                for owner, sequence, total in zip(owners, ids, sums, strict=True):
                    found[owner].append(Hypothesis(tuple(sequence), total, total / divisor))
                rest = (~ended).nonzero()[:, 0]
                row_of, history, totals, choice = row_of[rest], history[rest], totals[rest], choice[rest]
                state = state.select(rest)
            tokens = choice[:, None]
        return found
