"""Greedy search: the likeliest token at each step."""

import torch

from crosslight.decoding.likeliest import likeliest, only_end
from crosslight.decoding.protocols import LEAVE_TOGETHER, Hypothesis, State, Step
from crosslight.decoding.scores import length_penalty, max_lengths
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
        device, limits = max_lengths.device, max_lengths.tolist()
        found: list[list[Hypothesis]] = [[] for _ in limits]
        sentences = list(range(len(limits)))  # which sentence each remaining row belongs to
        ended = torch.zeros(len(limits), dtype=torch.bool, device=device)
        totals = torch.zeros(len(limits), device=device)
        tokens = torch.full((len(limits), 1), bos_id, device=device)
        history = torch.empty((len(limits), 0), dtype=torch.long, device=device)
        while sentences:
            logits, state = step(tokens, state)
            length = history.shape[1] + 1
            log_probs, tokens = likeliest(logits[:, -1], 1)
            if length >= min(limits[s] for s in sentences):
                at_limit = torch.tensor([length >= limits[s] for s in sentences], device=device)
                log_probs, tokens = only_end(log_probs, tokens, logits[:, -1], at_limit.nonzero()[:, 0], eos_id)
            totals = totals + log_probs[:, 0]
            history = torch.cat([history, tokens], dim=1)
            now = (tokens[:, 0] == eos_id) & ~ended
            if rows := now.nonzero()[:, 0].tolist():
                divisor = length_penalty(length, self.alpha, self.offset)
                for row, ids, total in zip(rows, history[now, :-1].tolist(), totals[now].tolist(), strict=True):
                    found[sentences[row]].append(Hypothesis(tuple(ids), total, total / divisor))
                ended = ended | now
                if int(ended.sum()) >= LEAVE_TOGETHER * len(sentences):
                    rest = (~ended).nonzero()[:, 0]
                    sentences = [sentences[i] for i in rest.tolist()]
                    totals, history, tokens, ended = totals[rest], history[rest], tokens[rest], ended[rest]
                    state = state.select(rest)
        return found
