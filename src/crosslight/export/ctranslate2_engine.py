"""Translating with an exported model: CTranslate2's search, asked for what ours would give.

Their search differs from ours in four things. Hypotheses are ranked by `length ** alpha`: all of a beam are asked for,
with their sums, and ranked here as ours are. One call has one greatest length: a sentence that comes near its own is
translated again with that. There a hypothesis is cut, and with us has to end: what EOS would have cost is asked for.
And a hypothesis that ends leaves its place to another one, where our beam gets smaller; so a few translations may
differ (docs/decisions/search.md has a count).
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crosslight.data.batching import plan_evaluation
from crosslight.decoding.beam import BeamSearch
from crosslight.decoding.greedy import GreedySearch
from crosslight.decoding.protocols import Search
from crosslight.decoding.scores import length_penalty
from crosslight.errors import ConfigError
from crosslight.export.ctranslate2_spec import pieces
from crosslight.tokenizers.base import Tokenizers

ALL_SUMS = 1e-6
"""A length penalty that leaves sums as they are, but with which CTranslate2 waits for a whole beam to end."""


class CTranslate2Engine:
    """Translates ids to texts. `limit` is the number of the model's positions, `budget` the tokens in a batch."""

    def __init__(
        self,
        folder: Path,
        tokenizers: Tokenizers,
        search: Search,
        *,
        limit: int | None,
        budget: int,
        device: str,
        threads: int,
    ) -> None:
        if not isinstance(search, BeamSearch | GreedySearch):
            raise ConfigError(
                f"engine=ctranslate2: has no {type(search).__name__}, with which this run translates; "
                f"without engine=… it does"
            )
        import ctranslate2

        if ctranslate2.get_cuda_device_count() and device == "cuda":
            self._translator = ctranslate2.Translator(str(folder), device, compute_type="float32")
        else:  # a thread a batch: several threads in one batch of sentences wait for each other too often
            self._translator = ctranslate2.Translator(
                str(folder), compute_type="float32", inter_threads=threads, intra_threads=1
            )
        self._search, self.max_positions, self._budget = search, limit, budget
        self._alpha, self._offset = search.alpha, search.offset
        self._beam = search.beam_size if isinstance(search, BeamSearch) else 1
        self._source, self._target = pieces(tokenizers.source), tokenizers.target
        names = pieces(tokenizers.target)
        self._ids, self._end = {name: i for i, name in enumerate(names)}, names[tokenizers.target.eos_id]

    def __call__(self, encoded: list[list[int]], shortest: int) -> Iterator[tuple[list[int], list[str]]]:
        """The numbers of some rows and their translations, until all rows of at least `shortest` ids are done."""
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        limits = self._search.max_lengths(torch.from_numpy(lengths), self.max_positions).tolist()
        written = np.flatnonzero(lengths >= shortest)
        sources = {row: [self._source[i] for i in encoded[row][:-1]] for row in written.tolist()}  # they add EOS

        def search(rows: list[int], limit: int, ending: bool) -> Any:
            return rows, self._search_all([sources[row] for row in rows], limit, ending=ending)

        batches = [written[chosen].tolist() for chosen in plan_evaluation(lengths[written], self._budget)]
        found: dict[int, list[str]] = {}
        again: dict[int, list[int]] = defaultdict(list)
        for rows, results in [search(rows, max(limits[row] for row in rows), False) for rows in batches]:
            for row, result in zip(rows, (each.result() for each in results), strict=True):
                if any(len(names) >= limits[row] or names[-1] != self._end for names in result.hypotheses):
                    again[limits[row]].append(row)
                else:
                    found[row] = self._best(result.hypotheses, result.scores)
        for rows, results in [search(rows, limit, True) for limit, rows in again.items()]:
            for row, result in zip(rows, (each.result() for each in results), strict=True):
                sums = self._with_end(sources[row], result)
                found[row] = self._best(result.hypotheses, sums) if limits[row] > 1 else []
        yield list(found), self._target.decode_batch([[self._ids[name] for name in names] for names in found.values()])

    def _search_all(self, sources: list[list[str]], limit: int, *, ending: bool = False) -> list[Any]:
        """Promises of hypotheses that end within `limit` tokens, or are cut before the last of these, to be EOS.

        If some may be cut (`ending`), it is not always the best without EOS that is the best with it.
        """
        exact = self._beam == 1 or (self._alpha == 0 and not ending)  # the first to end is the best
        return self._translator.translate_batch(
            sources,
            beam_size=self._beam,
            num_hypotheses=1 if exact else self._beam,
            length_penalty=0 if exact else ALL_SUMS,
            max_decoding_length=max(1, limit - 1),
            max_input_length=0,
            return_scores=not exact,
            return_end_token=True,
            asynchronous=True,
        )

    def _with_end(self, source: list[str], result: Any) -> list[float]:
        """The scores, where a hypothesis was cut those of the whole with EOS."""
        if not result.scores:
            return []
        cut = [number for number, names in enumerate(result.hypotheses) if names[-1] != self._end]
        scores = list(result.scores)
        whole = self._translator.score_batch(
            [source] * len(cut), [result.hypotheses[number] for number in cut], max_input_length=0
        )
        for number, scored in zip(cut, whole, strict=True):
            scores[number] = sum(scored.log_probs)
        return scores

    def _best(self, hypotheses: list[list[str]], sums: list[float]) -> list[str]:
        """The best hypothesis, without EOS, by our length penalty."""
        ended = [names[:-1] if names[-1] == self._end else names for names in hypotheses]
        if len(ended) == 1:
            return ended[0]
        divisors = [length_penalty(len(names) + 1, self._alpha, self._offset) for names in ended]
        return max(zip(sums, divisors, ended, strict=True), key=lambda entry: entry[0] / entry[1])[2]
