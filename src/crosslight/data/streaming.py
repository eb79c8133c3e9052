"""Training on a stream: text is read, cleaned, encoded and batched on the way, through a shuffle buffer.

For corpora whose prepared form would not fit the disk, or of which training will see only a part. The buffer holds raw
pairs: it is filled, a seeded half of it is drawn as a round, and so on, so every pair is in exactly one round of an
epoch. To go on in the middle of an epoch the text before is read again, but only read: drawing needs no ids.
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from crosslight.batches import Batch
from crosslight.data.batching import Rows, plan_epoch
from crosslight.data.collate import Resampled, collate
from crosslight.data.corpus import CHUNK_ROWS, Part, row_numbers
from crosslight.data.corpus import SCHEMA as PAIR_SCHEMA
from crosslight.data.encoded import EncodedPairs
from crosslight.data.leaks import LeakGuard
from crosslight.data.report import cleaning_table, judge_leaks, refuse_nothing
from crosslight.data.sieve import Sieve, sifted_in_order
from crosslight.data.training_text import TrainingText
from crosslight.tokenizers.base import Tokenizers

log = logging.getLogger(__name__)

TEXT = pa.large_string()  # a buffer may hold more than 2 GB
RAW = pa.schema([("source", TEXT), ("target", TEXT), ("part", pa.int32()), ("row", pa.int64())])

PART_BITS = 40
"""A sentence of a stream is named by its part and, in the lower bits, its number there."""

KEPT_MARKS = 8
"""Lightning fetches a window or two ahead, so the place of the present one is needed a little longer."""


class TrainingStream:
    """Rounds of encoded pairs. `report` tells what the last whole epoch read and left out (null before); duplicates are
    looked for within a round."""

    def __init__(
        self, text: TrainingText, tokenizers: Tokenizers, guard: LeakGuard | None, *, leaks: str, buffer: int, seed: int
    ) -> None:
        self.text, self.tokenizers, self.guard, self.leaks = text, tokenizers, guard, leaks
        self.buffer, self.seed = buffer, seed
        self.name = ", ".join(part.pairs.name for part in text.parts)
        self.content_hash = text.fingerprint
        unknown = dict.fromkeys(("read", "kept", "truncated", "leaks"))
        self.report: dict[str, Any] = {**unknown, "left_out": {}, "parts": {part.name: None for part in text.parts}}

    def rounds(self, epoch: int, first: int = 0) -> Iterator[EncodedPairs]:
        """The rounds of an epoch from number `first` on. The next is made in a thread while one is trained on."""
        rounds = self._rounds(epoch, first)
        with ThreadPoolExecutor(1) as pool:
            ready = pool.submit(next, rounds, None)
            while (data := ready.result()) is not None:
                ready = pool.submit(next, rounds, None)
                yield data

    def _sieve(self) -> Sieve:
        guard = self.guard and LeakGuard(self.guard.sets)
        return Sieve(self.text.cleaning, self.tokenizers, guard, drop_leaks=self.leaks == "drop")

    def _rounds(self, epoch: int, first: int) -> Iterator[EncodedPairs]:
        sieve, numbers = self._sieve(), {part.name: number for number, part in enumerate(self.text.parts)}
        warned = False
        for table in islice(self._drawn(epoch), first, None):
            sieve.forget()
            batches, names = [], []
            for sifted in sifted_in_order(sieve, self._chunks(table)):
                batch = sieve.settle(sifted)
                batches.append(batch)
                names.append(batch.column("row").to_numpy() + (numbers[sifted.part.name] << PART_BITS))
            self._judge_leaks(sieve, warned)
            warned = warned or bool(sieve.guard and sieve.guard.pairs)
            yield EncodedPairs(self.name, batches, self.content_hash, sentence_ids=np.concatenate(names))
        if not first:
            self.report.update(sieve.report())
            refuse_nothing(self.name, self.report)
            for line in cleaning_table(self.report):
                log.info("%s", line)
            judge_leaks(self.report, self.leaks)

    def _judge_leaks(self, sieve: Sieve, warned: bool) -> None:
        """A leak is reported, or refused, before the round in which it was found is trained on."""
        if sieve.guard and sieve.guard.pairs and not warned and self.leaks != "ignore":
            log.info("data: leaks in the first %s pairs of the stream", f"{sieve.read:,}")
            judge_leaks(sieve.report(), self.leaks)

    def _drawn(self, epoch: int) -> Iterator[pa.Table]:
        """The raw pairs of each round, in the order in which they were read."""
        rng, read, buffer, ended = np.random.default_rng([self.seed, epoch]), self._read(), RAW.empty_table(), False
        while not ended:
            filling = [buffer]
            while not ended and sum(table.num_rows for table in filling) < self.buffer:
                table = next(read, None)
                ended = table is None
                filling += [] if table is None else [table]
            buffer = pa.concat_tables(filling).combine_chunks()
            order = rng.permutation(buffer.num_rows)
            half = len(order) if ended else (len(order) + 1) // 2
            drawn, buffer = (buffer.take(np.sort(rows)) for rows in (order[:half], order[half:]))
            if drawn.num_rows:
                yield drawn

    def _read(self) -> Iterator[pa.Table]:
        """All parts in turn, a chunk at a time, until each has ended."""
        sources = [(number, part.pairs.chunks()) for number, part in enumerate(self.text.parts)]
        rows = [0] * len(sources)
        while sources:
            for number, chunks in list(sources):
                if (chunk := next(chunks, None)) is None:
                    sources.remove((number, chunks))
                    continue
                places = row_numbers(self.text.parts[number].pairs, rows[number], chunk.num_rows)
                rows[number] += chunk.num_rows
                parts = np.full(chunk.num_rows, number, np.int32)
                sides = [column.cast(TEXT) for column in chunk.columns]
                yield pa.table([*sides, pa.array(parts), pa.array(places)], schema=RAW)

    def _chunks(self, table: pa.Table) -> Iterator[tuple[Part, pa.RecordBatch, Rows]]:
        """A round's raw pairs, part by part, in chunks for the sieve."""
        parts = table.column("part").to_numpy()
        for number, part in enumerate(self.text.parts):
            rows = np.flatnonzero(parts == number)
            for start in range(0, len(rows), CHUNK_ROWS):
                taken = table.take(rows[start : start + CHUNK_ROWS]).combine_chunks()
                (chunk,) = taken.select(["source", "target"]).cast(PAIR_SCHEMA).to_batches()
                yield part, chunk, taken.column("row").to_numpy()


class Mark(NamedTuple):
    """A place in a stream: the micro-batch `batch` of round `round`."""

    round: int = 0
    batch: int = 0


class StreamLoader:
    """The windows of an epoch from number `start` on, which begins at `mark`. Lightning passes it through untouched.

    It has no length: that is known only at the end. `marks` tells where the latest windows begin.
    """

    def __init__(
        self,
        stream: TrainingStream,
        *,
        max_tokens: int,
        share: list[int],
        window: int,
        resampled: Resampled | None,
        epoch: int,
        start: int,
        mark: Mark,
        pin_memory: bool = False,
    ) -> None:
        self.pin_memory = pin_memory
        self.stream, self.max_tokens, self.share, self.window = stream, max_tokens, share, window
        self.resampled, self.epoch, self.start, self.mark = resampled, epoch, start, mark
        self.marks = {start: mark}

    def __iter__(self) -> Iterator[list[Batch]]:
        micro_batches, number = self._micro_batches(), self.start
        while taken := list(islice(micro_batches, self.window)):
            last = taken[-1][2]
            self.marks[number + 1] = Mark(last.round, last.batch + 1)
            self.marks.pop(number - KEPT_MARKS, None)
            yield [self._batch(taken, number, place) for place in self.share]
            number += 1

    @property
    def sampler(self) -> "StreamLoader":
        """Lightning calls `loader.sampler.set_epoch`."""
        return self

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch, self.start, self.mark, self.marks = epoch, 0, Mark(), {0: Mark()}

    def _batch(self, taken: list[tuple[EncodedPairs, Rows, Mark]], window: int, place: int) -> Batch:
        tokenizers, index = self.stream.tokenizers, window * self.window + place
        data, rows = taken[place][:2] if place < len(taken) else (taken[0][0], np.empty(0, np.int64))
        batch = collate(data, rows, tokenizers, epoch=self.epoch, index=index, resampled=self.resampled)
        return batch.pin_memory() if self.pin_memory else batch

    def _micro_batches(self) -> Iterator[tuple[EncodedPairs, Rows, Mark]]:
        start = self.mark
        for number, data in enumerate(self.stream.rounds(self.epoch, start.round), start.round):
            lengths = data.source_lengths, data.target_lengths
            seed = [self.stream.seed, number]
            for place, rows in enumerate(plan_epoch(*lengths, self.max_tokens, seed=seed, epoch=self.epoch)):
                if number > start.round or place >= start.batch:
                    yield data, rows, Mark(number, place)
