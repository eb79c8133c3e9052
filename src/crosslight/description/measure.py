"""What a data set is like, in numbers: sizes, lengths, vocabulary, and the batches that a budget of tokens makes.

Pieces are ids without EOS and without the tag of a target language. Words are what white space separates.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crosslight.data.batching import plan_epoch, rows_of_epoch
from crosslight.data.encoded import Column, EncodedPairs
from crosslight.tokenizers.base import Tokenizer, Tokenizers

Counts = NDArray[np.int64]

MOST_BINS = 64
RATIO_EDGES = 2.0 ** np.linspace(-2.0625, 2.0625, 34)
"""The middle bin holds the ratio 1; the outermost ones are about 1/4 and 4, and what lies beyond."""


@dataclass(frozen=True)
class Side:
    """One side of a set. `length_counts[n]` lines have n pieces; `piece_counts[i]` is how often id i occurs.

    `unknown` counts the pieces that stand for characters without one; it is None if the tokenizer knows no such piece.
    """

    words: int
    characters: int
    unknown: int | None
    length_counts: Counts
    piece_counts: Counts

    @property
    def pieces(self) -> int:
        return int(self.length_counts @ np.arange(len(self.length_counts)))

    @property
    def mean(self) -> float:
        """Pieces a line."""
        return self.pieces / max(1, int(self.length_counts.sum()))

    def quantile(self, q: float) -> int:
        """The least length that the share `q` of all lines does not exceed."""
        reached = np.cumsum(self.length_counts)
        return int(np.searchsorted(reached, q * reached[-1]))

    @property
    def longest(self) -> int:
        return len(self.length_counts) - 1

    @property
    def pieces_per_word(self) -> float:
        return self.pieces / max(1, self.words)

    @property
    def unknown_rate(self) -> float | None:
        return None if self.unknown is None else self.unknown / max(1, self.pieces)


@dataclass(frozen=True)
class SetDescription:
    """A set of pairs.

    `joint_lengths[i, j]` pairs have `i * joint_step` source pieces or up to `joint_step - 1` more, and so for targets.
    `ratio_counts` counts pairs by target pieces over source pieces, in the bins of RATIO_EDGES. `share` is what the set
    gives to an epoch, if it is part of a mixture.
    """

    name: str
    pairs: int
    source: Side
    target: Side
    joint_lengths: Counts
    joint_step: int
    ratio_counts: Counts
    share: float | None = None


@dataclass(frozen=True)
class Batches:
    """The micro-batches of the first epoch under a budget, in how many updates. `_cells` are tokens with padding."""

    max_tokens: int
    number: int
    updates: int
    sentences: int
    source_tokens: int
    target_tokens: int
    source_cells: int
    target_cells: int

    @property
    def sentences_a_batch(self) -> float:
        return self.sentences / max(1, self.number)

    @property
    def source_padding(self) -> float:
        """The share of padding on the source side."""
        return 1 - self.source_tokens / max(1, self.source_cells)

    @property
    def target_padding(self) -> float:
        return 1 - self.target_tokens / max(1, self.target_cells)

    @property
    def padding(self) -> float:
        """The share of padding on both sides together."""
        return 1 - (self.source_tokens + self.target_tokens) / max(1, self.source_cells + self.target_cells)


@dataclass(frozen=True)
class Vocabulary:
    """One vocabulary and how often training uses each id; `special` ids (pad, BOS, EOS, tags, unknown) do not count."""

    name: str
    tokenizer: Tokenizer
    counts: Counts
    special: AbstractSet[int]

    @property
    def size(self) -> int:
        """How many pieces text can be made of."""
        return len(self.counts) - len(self.special)

    @cached_property
    def ranked(self) -> NDArray[np.int64]:
        """The ids that occur, the most frequent first, equally frequent ones by number."""
        order = np.argsort(-self.counts, kind="stable")
        order = order[self.counts[order] > 0]
        return order[~np.isin(order, list(self.special))]

    def named(self, ids: NDArray[np.int64]) -> list[tuple[str, int]]:
        """The pieces of these ids, each with its count."""
        return list(zip(self.tokenizer.pieces(ids.tolist()), self.counts[ids].tolist(), strict=True))


@dataclass(frozen=True)
class Description:
    """All that a report on data shows. `parts` are empty unless training mixes several; `facts` are titled settings.

    `report` is that of `data.preparation`. The batches are ordered by budget; `max_tokens` is the configured one.
    """

    name: str
    source_lang: str
    target_lang: str
    train: SetDescription
    parts: list[SetDescription]
    evaluation: list[SetDescription]
    vocabularies: list[Vocabulary]
    batches: list[Batches]
    max_tokens: int
    report: dict[str, Any]
    facts: dict[str, dict[str, str]]

    @property
    def sets(self) -> list[SetDescription]:
        """Training, its parts, validation and test sets."""
        return [self.train, *self.parts, *self.evaluation]

    @property
    def chosen(self) -> Batches:
        """The batches of the configured budget."""
        return next(batches for batches in self.batches if batches.max_tokens == self.max_tokens)


def describe_set(
    name: str,
    data: EncodedPairs,
    tokenizers: Tokenizers,
    *,
    tag_ids: AbstractSet[int] = frozenset(),
    rows: tuple[int, int] | None = None,
    share: float | None = None,
) -> SetDescription:
    """The numbers of a set, or of its rows from `rows[0]` to before `rows[1]`. `tag_ids` may stand before a source."""
    start, stop = rows or (0, len(data))
    sides, lengths = [], []
    for text, ids, tokenizer, tags in (
        (data.source_text, data.source, tokenizers.source, tag_ids),
        (data.target_text, data.target, tokenizers.target, frozenset[int]()),
    ):
        side, numbers = _side(_rows(text, start, stop), _rows(ids, start, stop), tokenizer, tags)
        sides.append(side)
        lengths.append(numbers)
    longest = max(side.longest for side in sides)
    step = longest // MOST_BINS + 1
    joint = np.zeros([longest // step + 1] * 2, np.int64)
    np.add.at(joint, tuple(numbers // step for numbers in lengths), 1)
    written = (lengths[0] > 0) & (lengths[1] > 0)
    ratios = np.clip(lengths[1][written] / lengths[0][written], RATIO_EDGES[0], RATIO_EDGES[-1])
    ratio_counts = np.histogram(ratios, RATIO_EDGES)[0]
    return SetDescription(name, stop - start, sides[0], sides[1], joint, step, ratio_counts, share)


def describe_parts(
    data: EncodedPairs,
    names: Sequence[str],
    shares: Sequence[float] | None,
    tokenizers: Tokenizers,
    *,
    tag_ids: AbstractSet[int] = frozenset(),
) -> list[SetDescription]:
    """The numbers of each part of a mixture; `shares` are theirs in an epoch, None taking every pair once."""
    ends = np.cumsum([0, *data.parts]).tolist()
    taken = shares or [size / max(1, len(data)) for size in data.parts]
    return [
        describe_set(name, data, tokenizers, tag_ids=tag_ids, rows=(ends[k], ends[k + 1]), share=taken[k])
        for k, name in enumerate(names)
    ]


def describe_batches(
    data: EncodedPairs, max_tokens: int, *, window: int, seed: int, shares: Sequence[float] | None = None
) -> Batches:
    """The batches of the first epoch, as training plans them; an update takes `window` of them."""
    rows = None if shares is None else rows_of_epoch(data.parts, shares, seed=seed, epoch=0)
    batches = plan_epoch(data.source_lengths, data.target_lengths, max_tokens, seed=seed, epoch=0, rows=rows)
    sizes = np.fromiter(map(len, batches), np.int64, len(batches))
    starts = np.cumsum(sizes) - sizes
    taken = np.concatenate([np.empty(0, np.int64), *batches])
    sides = [lengths[taken].astype(np.int64) for lengths in (data.source_lengths, data.target_lengths)]
    cells = [int((np.maximum.reduceat(side, starts) * sizes).sum()) if len(starts) else 0 for side in sides]
    updates = -(-len(batches) // window)
    return Batches(max_tokens, len(batches), updates, len(taken), *(int(side.sum()) for side in sides), *cells)


def vocabularies_of(train: SetDescription, tokenizers: Tokenizers, tag_ids: AbstractSet[int]) -> list[Vocabulary]:
    """The vocabulary of each side, or the one of both, with what training uses of it."""
    source, target = tokenizers.source, tokenizers.target
    if tokenizers.joint:
        counts = train.source.piece_counts + train.target.piece_counts
        return [Vocabulary("both sides", source, counts, _special(source) | tag_ids)]
    return [
        Vocabulary("source", source, train.source.piece_counts, _special(source) | tag_ids),
        Vocabulary("target", target, train.target.piece_counts, _special(target)),
    ]


def _special(tokenizer: Tokenizer) -> set[int]:
    unknown = tokenizer.unk_id
    return {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id} | ({unknown} if unknown is not None else set())


def _rows(column: Column, start: int, stop: int) -> pa.ChunkedArray:
    """Some rows of a column, nothing copied."""
    arrays = column.arrays
    return pa.chunked_array(arrays, arrays[0].type if arrays else pa.string()).slice(start, stop - start)


def _side(
    text: pa.ChunkedArray, ids: pa.ChunkedArray, tokenizer: Tokenizer, tags: AbstractSet[int]
) -> tuple[Side, Any]:
    """The numbers of one side, and how many pieces each line has."""
    words, counts, lengths = 0, np.zeros(tokenizer.vocab_size, np.int64), [np.empty(0, np.int64)]
    for chunk in text.chunks:
        trimmed = pc.utf8_trim_whitespace(chunk)
        separated = pc.sum(pc.list_value_length(pc.utf8_split_whitespace(trimmed))).as_py() or 0
        words += separated - (pc.sum(pc.equal(trimmed, "")).as_py() or 0)  # an empty line splits into one empty word
    for chunk in ids.chunks:
        offsets, values = chunk.offsets.to_numpy(), chunk.values.to_numpy()
        counts += np.bincount(values[offsets[0] : offsets[-1]], minlength=len(counts))
        tagged = np.isin(values[offsets[:-1]], list(tags)) if tags else 0  # no line is empty: EOS closes it
        lengths.append(np.diff(offsets).astype(np.int64) - 1 - tagged)
    unknown = tokenizer.unk_id
    counts[[tokenizer.eos_id, *tags]] = 0
    together = np.concatenate(lengths)
    characters = pc.sum(pc.utf8_length(text)).as_py() or 0
    return (
        Side(
            words,
            characters,
            None if unknown is None else int(counts[unknown]),
            np.bincount(together, minlength=1),
            counts,
        ),
        together,
    )
