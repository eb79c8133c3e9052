"""A data description as tables of formatted text, which the terminal and the page show alike."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from crosslight.description.measure import RATIO_EDGES, Counts, Description, SetDescription, Vocabulary

MANY = 20
BAR = 24


@dataclass(frozen=True)
class Table:
    """`rows` of cells under `header`. Columns whose number is in `texts` hold words, the others numbers.

    `bars` names columns of counts that the terminal draws as well.
    """

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: frozenset[int] = frozenset({0})
    bars: frozenset[int] = frozenset()

    def as_text(self) -> str:
        """Aligned columns under the caption."""
        rows = [self.header, *self._with_bars()]
        widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell + " " * (width - _width(cell))
                if number in self.texts | self.bars
                else " " * (width - _width(cell)) + cell
                for number, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([self.caption, *(f"  {line}" for line in lines)])

    def _with_bars(self) -> list[list[str]]:
        rows = [list(row) for row in self.rows]
        for column in self.bars:
            counts = [int(row[column].replace(",", "")) for row in self.rows]
            longest = max([*counts, 1])
            for row, count in zip(rows, counts, strict=True):
                bar = "█" * -(-BAR * count // longest)
                row[column] = f"{row[column]:>{len(f'{longest:,}')}} {bar:{BAR}}"
        return rows


def visible(text: str) -> str:
    """Text with what cannot be seen written out: control characters, marks of direction, unusual white space."""
    return "".join(c if c == " " or unicodedata.category(c)[0] not in "CZ" else _name(c) for c in text)


def sizes(description: Description) -> Table:
    """How much text there is, and how many pieces it makes."""
    header = ["set", "side", "pairs", "words", "characters", "pieces", "pieces/word", "unknown"]
    rows = [
        [
            *(each.name, name, f"{each.pairs:,}", f"{side.words:,}", f"{side.characters:,}", f"{side.pieces:,}"),
            *(f"{side.pieces_per_word:.2f}", "–" if side.unknown_rate is None else percent(side.unknown_rate)),
        ]
        for each in description.sets
        for name, side in (("source", each.source), ("target", each.target))
    ]
    return Table("How much text there is", header, rows, texts=frozenset({0, 1}))


def lengths(description: Description) -> Table:
    """How long the lines are."""
    rows = [
        [each.name, name, f"{side.mean:.1f}", str(side.quantile(0.5)), str(side.quantile(0.95)), str(side.longest)]
        for each in description.sets
        for name, side in (("source", each.source), ("target", each.target))
    ]
    header = ["set", "side", "mean", "median", "95 % up to", "longest"]
    return Table("Pieces a line", header, rows, texts=frozenset({0, 1}))


def parts(description: Description) -> Table | None:
    """What a mixture mixes."""
    rows = [
        [each.name, f"{each.pairs:,}", percent(each.pairs / max(1, description.train.pairs)), percent(each.share or 0)]
        for each in description.parts
    ]
    return Table("The mixture", ["part", "pairs", "of all pairs", "of an epoch"], rows) if rows else None


def length_histogram(each: SetDescription) -> Table:
    """How many lines have how many pieces, in some twenty rows; the last is open if few lines are far longer."""
    most = max(side.quantile(0.995) for side in (each.source, each.target)) + 1
    longest = max(each.source.longest, each.target.longest)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, most) if most <= MANY * step)
    starts = list(range(0, most, step))
    ranges = [_range(start, start + step - 1) for start in starts]
    ranges[-1] = _range(starts[-1], max(longest, starts[-1] + step - 1))
    columns = [_summed(side.length_counts, starts) for side in (each.source, each.target)]
    rows = [[name, f"{s:,}", f"{t:,}"] for name, s, t in zip(ranges, *columns, strict=True)]
    return Table(
        "Lines by their number of pieces", ["pieces", "source lines", "target lines"], rows, bars=frozenset({1, 2})
    )


def ratio_histogram(each: SetDescription) -> Table:
    """How many pairs have which ratio of lengths; rows of none at both ends are left away."""
    used = np.flatnonzero(each.ratio_counts)
    last = len(each.ratio_counts) - 1
    rows = []
    for k in range(used[0], used[-1] + 1) if len(used) else ():
        low, high = f"{RATIO_EDGES[k]:.2f}", f"{RATIO_EDGES[k + 1]:.2f}"
        name = f"up to {high}" if k == 0 else f"{low} and more" if k == last else f"{low}–{high}"
        rows.append([name, f"{each.ratio_counts[k]:,}"])
    return Table("Pairs by target pieces over source pieces", ["ratio", "pairs"], rows, bars=frozenset({1}))


def joint_lengths(each: SetDescription) -> Table:
    """How long the targets of shorter and longer sources are."""
    most = each.source.quantile(0.995) // each.joint_step + 1
    group = -(-most // (MANY // 2))
    rows, step = [], each.joint_step
    for start in range(0, most, group):
        end = start + group if start + group < most else len(each.joint_lengths)
        reached = np.cumsum(each.joint_lengths[start:end].sum(axis=0))
        if reached[-1]:
            low, middle, high = np.searchsorted(reached, np.array([0.05, 0.5, 0.95]) * reached[-1]).tolist()
            names = [_range(step * first, step * last + step - 1) for first, last in ((start, end - 1), (low, high))]
            rows.append([names[0], f"{reached[-1]:,}", _range(step * middle, step * middle + step - 1), names[1]])
    return Table("Target pieces by source pieces", ["source", "pairs", "target: median", "90 % within"], rows)


def batches(description: Description) -> Table:
    """What budgets of tokens make of the training pairs; the configured one has an arrow."""
    header = ["max_tokens", "batches", "updates", "sentences/batch", "padding source", "target", "both"]
    rows = [
        [
            f"→ {b.max_tokens:,}" if b.max_tokens == description.max_tokens else f"{b.max_tokens:,}",
            *(f"{b.number:,}", f"{b.updates:,}", f"{b.sentences_a_batch:.1f}"),
            *map(percent, (b.source_padding, b.target_padding, b.padding)),
        ]
        for b in description.batches
    ]
    return Table("Batches of the first epoch", header, rows, texts=frozenset())


def cleaning(description: Description) -> Table:
    """How many pairs were read, why some were left out, how many are left."""
    report = description.report
    found = {f"left out: {reason}": count for reason, count in report["left_out"].items() if count}
    cut = {"kept, cut to cleaning.max_len": report["truncated"]} if report["truncated"] else {}
    counts = {"read": report["read"], **found, "kept": report["kept"], **cut}
    rows = [[name, f"{count:,}", percent(count / max(1, report["read"]))] for name, count in counts.items()]
    return Table("Training pairs", ["pairs", "number", "share"], rows)


def examples(description: Description) -> Table | None:
    """The first pairs of each reason, with their line numbers before cleaning."""
    rows = [
        [reason, f"{example['part']} {example['line']:,}", visible(example["source"]), visible(example["target"])]
        for reason, found in description.report["examples"].items()
        for example in found
    ]
    header = ["reason", "line", "source", "target"]
    return Table("Examples of what was left out", header, rows, texts=frozenset({0, 1, 2, 3})) if rows else None


def leaks(description: Description) -> Table | None:
    """Which lines of validation and test sets training text has too; None if nobody has looked."""
    found = description.report["leaks"]
    if not found:
        return None
    rows = [
        [name, f"{counts['lines']:,}"]
        + [f"{counts[key]:,}" for key in ("source", "source_exact", "target", "target_exact")]
        for name, counts in found["sets"].items()
    ]
    header = ["set", "lines", "sources in training", "letter by letter", "targets in training", "letter by letter"]
    return Table(f"{found['training_pairs']:,} training pairs share a side with these sets", header, rows)


def vocabulary(description: Description) -> Table:
    """How much of each vocabulary training uses."""
    rows = []
    for each in description.vocabularies:
        used = len(each.ranked)
        rare = int((each.counts[each.ranked] < MANY).sum())
        rows.append([each.name, f"{each.size:,}", f"{used:,}", percent(used / max(1, each.size)), f"{rare:,}"])
    return Table("Vocabulary in training", ["side", "pieces", "used", "share", f"of these under {MANY} times"], rows)


def pieces(vocabulary: Vocabulary) -> Table:
    """The most frequent pieces beside the rarest that occur."""
    shown = min(MANY, len(vocabulary.ranked))
    frequent = vocabulary.named(vocabulary.ranked[:shown])
    rarest = vocabulary.named(vocabulary.ranked[::-1][:shown])
    rows = [[visible(a), f"{m:,}", visible(b), f"{n:,}"] for (a, m), (b, n) in zip(frequent, rarest, strict=True)]
    header = ["most frequent", "times", "rarest", "times"]
    return Table(f"Pieces of {vocabulary.name}", header, rows, texts=frozenset({0, 2}))


def facts(description: Description) -> list[Table]:
    """The settings behind the data, and where it lies."""
    return [
        Table(title, ["setting", "value"], [[key, visible(value)] for key, value in values.items()], frozenset({0, 1}))
        for title, values in description.facts.items()
    ]


def percent(share: float) -> str:
    """A share in per cent; what is not nothing does not look like nothing."""
    return "0 %" if share == 0 else "<0.01 %" if share < 1e-4 else f"{100 * share:.2f} %"


def _summed(counts: Counts, starts: Sequence[int]) -> Iterable[int]:
    """The counts between two starts, and from the last one on."""
    ends = [*starts[1:], len(counts)]
    return [int(counts[start:end].sum()) for start, end in zip(starts, ends, strict=True)]


def _range(first: int, last: int) -> str:
    return f"{first}–{last}" if first < last else str(first)


def _name(character: str) -> str:
    code = ord(character)
    return chr(0x2400 + code) if code < 0x20 else f"⟨U+{code:04X}⟩"


def _width(text: str) -> int:
    """How many columns a terminal takes for it: wide characters take two, combining ones none."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)
