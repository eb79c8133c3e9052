"""Other ways to cut a word into pieces, drawn from a generator that the caller seeds.

SentencePiece can draw, too, but it mixes a salt of each process into every seed, so that no run could be repeated.
"""

import heapq
import math
from collections.abc import Callable
from functools import lru_cache
from random import Random

Score = Callable[[str], float | None]
"""The score of a piece in the model, the higher the likelier or the earlier learnt; None for what is no piece."""


def drop_merges(word: str, score: Score, alpha: float, draw: Random) -> list[str]:
    """BPE in which each merge is left out with probability `alpha` (Provilkov et al. 2020)."""
    pieces, ends = list(word), list(range(1, len(word) + 1))  # the piece that begins at i, and where it ends
    before = list(range(-1, len(word) - 1))
    waiting: list[tuple[float, int, str]] = []

    def offer(left: int) -> None:
        if left >= 0 and ends[left] < len(word):
            merged = pieces[left] + pieces[ends[left]]
            if (value := score(merged)) is not None:
                heapq.heappush(waiting, (-value, left, merged))

    for place in range(len(word) - 1):
        offer(place)
    while waiting:
        _, left, merged = heapq.heappop(waiting)
        right = ends[left] if pieces[left] else len(word)
        stale = right == len(word) or pieces[left] + pieces[right] != merged
        if stale or draw.random() < alpha:
            continue
        pieces[left], pieces[right], ends[left] = merged, "", ends[right]
        if ends[left] < len(word):
            before[ends[left]] = left
        offer(before[left])
        offer(left)
    return [piece for piece in pieces if piece]


class Lattice:
    """All ways to cut words by a unigram model, each drawn by its probability to the power of `alpha` (Kudo 2018)."""

    def __init__(self, score: Score, alpha: float, longest: int) -> None:
        self.score, self.alpha, self.longest = score, alpha, longest
        self._arcs = lru_cache(100_000)(self._compute)

    def __call__(self, word: str, draw: Random) -> list[str]:
        arcs, end, pieces = self._arcs(word), len(word), []
        while end:
            starts, weights = arcs[end - 1]
            start = draw.choices(starts, weights)[0]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]

    def _compute(self, word: str) -> list[tuple[list[int], list[float]]]:
        """For each end: where the last piece may begin, and how much weight each beginning has (forward filtering)."""
        total, arcs = [0.0], []
        for end in range(1, len(word) + 1):
            found = {
                start: total[start] + self.alpha * value
                for start in range(max(0, end - self.longest), end)
                if (value := self.score(word[start:end])) is not None
            }
            best = max(found.values(), default=-math.inf)
            weights = [math.exp(value - best) for value in found.values()] if best > -math.inf else []
            total.append(best + math.log(sum(weights)) if weights else -math.inf)
            arcs.append((list(found), weights))
        return arcs
