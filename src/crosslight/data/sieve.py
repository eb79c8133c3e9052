"""From a chunk of raw text to encoded pairs fit for training, with a count and examples of what was left out."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crosslight.data.batching import Rows
from crosslight.data.cleaning import REASONS, Cleaning, Mask, without_nulls
from crosslight.data.corpus import Part
from crosslight.data.duplicates import Hashes, SeenBefore, pair_hashes
from crosslight.data.encoded import encoded_batch, id_array
from crosslight.data.leaks import LeakGuard, Overlap
from crosslight.tokenizers.base import Tokenizers

EXAMPLES = 5
EXAMPLE_CHARACTERS = 200


@dataclass
class Sifted:
    """A chunk after all rules that need no other chunk. `rows` are the numbers of its pairs in their part.

    `reasons[i]` is why pair i leaves, as a place in REASONS, or -1; `batch`, `hashes` and `overlap` are about the pairs
    that stay so far, which are at `places` of the chunk.
    """

    part: Part
    rows: Rows
    chunk: pa.RecordBatch
    reasons: NDArray[np.int8]
    places: Rows
    batch: pa.RecordBatch
    truncated: Mask
    hashes: Hashes | None
    overlap: Overlap | None


class Sieve:
    """`sift` may run in many threads at once; `settle` takes the chunks in order, for it must know what came before."""

    def __init__(
        self, cleaning: Cleaning, tokenizers: Tokenizers, guard: LeakGuard | None, *, drop_leaks: bool
    ) -> None:
        self.cleaning, self.tokenizers, self.guard, self.drop_leaks = cleaning, tokenizers, guard, drop_leaks
        self.read = self.kept = self.truncated = 0
        self.left_out = dict.fromkeys(REASONS, 0)
        self.examples: dict[str, list[dict[str, Any]]] = {}
        self._seen = SeenBefore()

    def sift(self, part: Part, chunk: pa.RecordBatch, numbers: Rows) -> Sifted:
        """Clean and encode a chunk whose pairs have these numbers in their part."""
        chunk = without_nulls(chunk)
        reasons = np.full(chunk.num_rows, -1, np.int8)
        _note(reasons, np.arange(chunk.num_rows), self.cleaning.judge_text(chunk, part.source_lang, part.target_lang))
        rows = np.flatnonzero(reasons < 0)
        text = chunk.take(pa.array(rows))
        source, target = text.columns
        ids = self.tokenizers.source.encode_many(source), self.tokenizers.target.encode_many(target)
        lengths = np.maximum(ids[0].lengths, ids[1].lengths)
        _note(reasons, rows, self.cleaning.judge_lengths(ids[0].lengths, ids[1].lengths))
        stay = reasons[rows] < 0
        limit = self.cleaning.max_len if self.cleaning.over_long == "truncate" else None
        truncated = np.zeros(len(rows), bool) if limit is None else lengths > limit
        if not stay.all() or truncated.any():
            ids = ids[0].select(stay, limit), ids[1].select(stay, limit)
        rows, truncated, text = rows[stay], truncated[stay], text.filter(pa.array(stay))
        hashes = pair_hashes(text) if self.cleaning.drop_duplicates else None
        tag = None if part.tag is None else self.tokenizers.source.symbol_id(part.tag)
        batch = encoded_batch(
            numbers[rows],
            text,
            id_array(ids[0], first=tag, last=self.tokenizers.source.eos_id),
            id_array(ids[1], last=self.tokenizers.target.eos_id),
        )
        overlap = self.guard.look(text) if self.guard else None
        return Sifted(part, numbers, chunk, reasons, rows, batch, truncated, hashes, overlap)

    def settle(self, sifted: Sifted) -> pa.RecordBatch:
        """The pairs of a chunk that stay, everything counted."""
        rows = sifted.places
        if sifted.hashes is not None:
            _note(sifted.reasons, rows, {"duplicate": self._seen(sifted.hashes)})
        if self.guard and sifted.overlap:
            self.guard.count(sifted.overlap, sifted.reasons[rows] < 0)
            if self.drop_leaks:
                _note(sifted.reasons, rows, {"leak": sifted.overlap.rows})
        self._count(sifted)
        stay = sifted.reasons[rows] < 0
        self.truncated += int(sifted.truncated[stay].sum())
        batch = sifted.batch if stay.all() else sifted.batch.filter(pa.array(stay))
        self.kept += batch.num_rows
        return batch

    def forget(self) -> None:
        """Pairs of earlier chunks make no duplicates any more."""
        self._seen = SeenBefore()

    def report(self) -> dict[str, Any]:
        """What was read, kept and left out, as plain data."""
        return {
            "read": self.read,
            "kept": self.kept,
            "left_out": self.left_out,
            "truncated": self.truncated,
            "examples": self.examples,
            "leaks": self.guard.report() if self.guard else None,
        }

    def _count(self, sifted: Sifted) -> None:
        self.read += len(sifted.reasons)
        for number, reason in enumerate(REASONS):
            rows = np.flatnonzero(sifted.reasons == number)
            self.left_out[reason] += len(rows)
            wanted = EXAMPLES - len(self.examples.get(reason, []))
            for row in rows[:wanted].tolist() if wanted > 0 else []:
                source, target = (column[row].as_py()[:EXAMPLE_CHARACTERS] for column in sifted.chunk.columns)
                example = {"part": sifted.part.name, "line": int(sifted.rows[row]) + 1}
                self.examples.setdefault(reason, []).append({**example, "source": source, "target": target})


def sifted_in_order(sieve: Sieve, chunks: Iterable[tuple[Part, pa.RecordBatch, Rows]]) -> Iterator[Sifted]:
    """Every chunk after `sieve.sift`, in order, by a thread for each core; few chunks are in memory at once."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    waiting: deque[Future[Sifted]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for chunk in chunks:
            waiting.append(pool.submit(sieve.sift, *chunk))
            if len(waiting) > threads + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _note(reasons: NDArray[np.int8], rows: Rows, masks: dict[str, Mask]) -> None:
    """Write down why rows leave; a reason that stands already stays."""
    for reason, mask in masks.items():
        found = rows[mask]
        reasons[found[reasons[found] < 0]] = REASONS.index(reason)
