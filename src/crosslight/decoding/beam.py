"""Beam search with the length penalty of Wu et al. 2016, batched over sentences.

A sentence starts with `beam_size` places. Each step keeps the best continuations, as many as there are places; one that
ends in EOS is finished and takes its place with it, so the beam shrinks (as in Marian) and a beam of one is greedy
search. A sentence leaves the batch when no place is left, or, which changes no result, as soon as no unfinished
hypothesis can still enter its `n_best`.
"""

import torch

from crosslight.decoding.protocols import Hypothesis, State, Step
from crosslight.decoding.scores import length_penalty, max_lengths, only
from crosslight.errors import ConfigError
from crosslight.shapes import Float, Int, Tensor


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
        finished: list[list[Hypothesis]] = [[] for _ in range(batch)]
        limits = max_lengths.tolist()
        # one row a sentence at first: all places of a beam start from the same BOS
        sentences = list(range(batch))
        places = torch.full((batch,), beam, device=device)
        totals = torch.zeros((batch, 1), device=device)
        tokens = torch.full((batch, 1), bos_id, device=device)
        history = torch.empty((batch, 1, 0), dtype=torch.long, device=device)
        while sentences:
            logits, state = step(tokens, state)
            log_probs = logits[:, -1].float().log_softmax(dim=-1).view(len(sentences), -1, logits.shape[-1])
            length = history.shape[2] + 1
            ending = torch.tensor([length >= limits[s] for s in sentences], device=device)
            if ending.any():
                log_probs = torch.where(ending[:, None, None], only(eos_id, log_probs), log_probs)
            totals, parents, choices = _best(totals[:, :, None] + log_probs, beam)
            choices = choices.masked_fill(ending[:, None], eos_id)  # also where a broken model made every sum NaN
            totals = totals.masked_fill(torch.arange(beam, device=device) >= places[:, None], -torch.inf)
            history = torch.cat(
                [history.gather(1, parents[..., None].expand(-1, -1, length - 1)), choices[..., None]], 2
            )

            ended = (choices == eos_id) & ~totals.isneginf()
            self._collect(finished, sentences, ended, history, totals, length)
            totals = totals.masked_fill(ended, -torch.inf)
            places = places - ended.sum(dim=1)

            best = totals.max(dim=1).values.tolist()
            going = [i for i, s in enumerate(sentences) if self._can_improve(finished[s], best[i], length, limits[s])]
            keep = torch.tensor(going, dtype=torch.long, device=device)
            rows = keep[:, None] * (state.num_rows // len(sentences)) + parents[keep]
            sentences = [sentences[i] for i in going]
            totals, places, history = totals[keep], places[keep], history[keep]
            tokens = choices[keep].view(-1, 1)
            state = state.select(rows.flatten())
        return [sorted(pool, key=lambda h: -h.score)[: self.n_best] for pool in finished]

    def _collect(
        self,
        finished: list[list[Hypothesis]],
        sentences: list[int],
        ended: Tensor,
        history: Tensor,
        totals: Tensor,
        length: int,
    ) -> None:
        """Move what ended into its sentence's pool."""
        owners = ended.nonzero()[:, 0].tolist()
        divisor = length_penalty(length, self.alpha, self.offset)
        for owner, ids, total in zip(owners, history[ended][:, :-1].tolist(), totals[ended].tolist(), strict=True):
            finished[sentences[owner]].append(Hypothesis(tuple(ids), total, total / divisor))

    def _can_improve(self, pool: list[Hypothesis], best: float, length: int, limit: int) -> bool:
        """Whether an unfinished hypothesis, the best of which has the sum `best`, can still enter the n-best.

        A sum only falls from here, so its best score has the most favourable of the lengths still possible.
        """
        if best == -float("inf"):
            return False
        if len(pool) < self.n_best:
            return True
        worst = sorted((h.score for h in pool), reverse=True)[self.n_best - 1]
        longest = max(
            length_penalty(length + 1, self.alpha, self.offset), length_penalty(limit, self.alpha, self.offset)
        )
        return best / longest > worst


def _best(
    scores: Float[Tensor, "batch old_beam vocab"], beam: int
) -> tuple[Float[Tensor, "batch beam"], Int[Tensor, "batch beam"], Int[Tensor, "batch beam"]]:
    """The best continuations: their sums, which hypothesis each continues, and with which token.

    If there are fewer candidates than places, the rest is filled with impossible ones (minus infinity).
    """
    batch, _, vocab = scores.shape
    candidates = scores.flatten(1)
    top, index = candidates.topk(min(beam, candidates.shape[1]), dim=1)
    missing = beam - top.shape[1]
    if missing:
        top = torch.cat([top, top.new_full((batch, missing), -torch.inf)], dim=1)
        index = torch.cat([index, index.new_zeros((batch, missing))], dim=1)
    return top, index // vocab, index % vocab
