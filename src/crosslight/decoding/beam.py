"""Beam search with the length penalty of Wu et al. 2016, batched over sentences.

A sentence starts with `beam_size` places. Each step keeps the best continuations, as many as there are places; one that
ends in EOS is finished and takes its place with it, so the beam shrinks (as in Marian) and a beam of one is greedy
search. A sentence is done when no place is left, or, which changes no result, as soon as no unfinished hypothesis can
still enter its `n_best`. Those that are done leave the batch.
"""

import torch

from crosslight.decoding.likeliest import likeliest, only_end
from crosslight.decoding.protocols import LEAVE_TOGETHER, Hypothesis, State, Step
from crosslight.decoding.scores import length_penalty, max_lengths
from crosslight.errors import ConfigError
from crosslight.shapes import Bool, Float, Int, Tensor


class BeamSearch:
    """The `n_best` highest-scoring of the hypotheses that a beam finds; at its greatest length one must end."""

    def __init__(
        self,
        *,
        beam_size: int,
        n_best: int,
        length_penalty: float,
        length_offset: float,
        max_len_factor: float,
        max_len_extra: int,
    ) -> None:
        if not 1 <= n_best <= beam_size:
            raise ConfigError(f"decode.n_best: need 1 <= n_best={n_best} <= decode.beam_size={beam_size}")
        self.beam_size, self.n_best = beam_size, n_best
        self.alpha, self.offset = length_penalty, length_offset
        self.factor, self.extra = max_len_factor, max_len_extra

    def max_lengths(self, source_lengths: Int[Tensor, " row"], limit: int | None) -> Int[Tensor, " row"]:
        return max_lengths(source_lengths, self.factor, self.extra, limit)

    @torch.no_grad()
    def __call__(
        self, step: Step, state: State, *, bos_id: int, eos_id: int, max_lengths: Int[Tensor, " row"]
    ) -> list[list[Hypothesis]]:
        device, batch, beam = max_lengths.device, state.num_rows, self.beam_size
        limits = max_lengths.tolist()
        pools: list[list[Hypothesis]] = [[] for _ in range(batch)]
        sentences = list(range(batch))
        # the score of each pool's n-th best and the penalty at the greatest length; float64, as scores are in the pools
        worst = torch.full((batch,), -torch.inf, dtype=torch.double, device=device)
        last_penalty = worst.new_tensor([length_penalty(limit, self.alpha, self.offset) for limit in limits])
        # one row a sentence at first: all places of a beam start from the same BOS
        places = torch.full((batch,), beam, device=device)
        totals = torch.zeros((batch, 1), device=device)
        tokens = torch.full((batch, 1), bos_id, device=device)
        history = torch.empty((batch, 1, 0), dtype=torch.long, device=device)
        while sentences:
            logits, following = step(tokens, state)
            length = history.shape[2] + 1
            log_probs, ids = likeliest(logits[:, -1], min(beam, logits.shape[-1]))
            if length >= min(limits[s] for s in sentences):
                at_limit = torch.tensor([length >= limits[s] for s in sentences], device=device)
                rows = at_limit.repeat_interleave(totals.shape[1]).nonzero()[:, 0]
                log_probs, ids = only_end(log_probs, ids, logits[:, -1], rows, eos_id)
            totals, parents, choices = _best(totals, log_probs, ids, beam)
            totals = totals.masked_fill(torch.arange(beam, device=device) >= places[:, None], -torch.inf)
            past = history.gather(1, parents[:, :, None].expand(-1, -1, length - 1))
            history = torch.cat([past, choices[:, :, None]], dim=2)

            ended = (choices == eos_id) & ~totals.isneginf()
            if owners := ended.nonzero()[:, 0].tolist():
                self._collect(pools, [sentences[i] for i in owners], history[ended], totals[ended], length)
                totals = totals.masked_fill(ended, -torch.inf)
                places = places - ended.sum(dim=1)
                worst = worst.new_tensor([self._worst(pools[s]) for s in sentences])

            done = self._done(totals, worst, last_penalty, length)
            num_done = int(done.sum())
            state = following.branch(parents)
            if num_done >= max(1, LEAVE_TOGETHER * len(sentences)):
                rest = (~done).nonzero()[:, 0]
                sentences = [sentences[i] for i in rest.tolist()]
                totals, places, history, choices = totals[rest], places[rest], history[rest], choices[rest]
                worst, last_penalty = worst[rest], last_penalty[rest]
                state = state.select(rest)
            elif num_done:
                totals = totals.masked_fill(done[:, None], -torch.inf)
            tokens = choices.view(-1, 1)
        return [sorted(pool, key=lambda h: -h.score)[: self.n_best] for pool in pools]

    def _collect(
        self,
        pools: list[list[Hypothesis]],
        owners: list[int],
        ended: Int[Tensor, "hypothesis length"],
        totals: Float[Tensor, " hypothesis"],
        length: int,
    ) -> None:
        """Move what ended into its sentence's pool."""
        divisor = length_penalty(length, self.alpha, self.offset)
        for owner, ids, total in zip(owners, ended[:, :-1].tolist(), totals.tolist(), strict=True):
            pools[owner].append(Hypothesis(tuple(ids), total, total / divisor))

    def _worst(self, pool: list[Hypothesis]) -> float:
        """What a hypothesis must surpass to enter the n-best."""
        if len(pool) < self.n_best:
            return -float("inf")
        return sorted((h.score for h in pool), reverse=True)[self.n_best - 1]

    def _done(
        self,
        totals: Float[Tensor, "sentence place"],
        worst: Float[Tensor, " sentence"],
        last_penalty: Float[Tensor, " sentence"],
        length: int,
    ) -> Bool[Tensor, " sentence"]:
        """Whether no unfinished hypothesis can enter the n-best any more.

        A sum only falls from here, so its best score has the most favourable of the lengths still possible.
        """
        best = totals.max(dim=1).values.double()
        longest = last_penalty.clamp(min=length_penalty(length + 1, self.alpha, self.offset))
        return best.isneginf() | (best / longest <= worst)


def _best(
    totals: Float[Tensor, "sentence old_place"],
    log_probs: Float[Tensor, "row candidate"],
    ids: Int[Tensor, "row candidate"],
    beam: int,
) -> tuple[Float[Tensor, "sentence beam"], Int[Tensor, "sentence beam"], Int[Tensor, "sentence beam"]]:
    """The best continuations: their sums, which hypothesis each continues, and with which token.

    If there are fewer candidates than places, the rest is filled with impossible ones (minus infinity).
    """
    sentences, candidates = len(totals), log_probs.shape[1]
    sums = (totals.view(-1, 1) + log_probs).view(sentences, -1)
    best, index = sums.topk(min(beam, sums.shape[1]), dim=1)
    missing = beam - best.shape[1]
    if missing:
        best = torch.cat([best, best.new_full((sentences, missing), -torch.inf)], dim=1)
        index = torch.cat([index, index.new_zeros((sentences, missing))], dim=1)
    return best, index // candidates, ids.view(sentences, -1).gather(1, index)
