"""What preparing the training data found, in the words of the log; an unwanted leak ends the run here."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from crosslight.data.encoded import EncodedPairs
from crosslight.errors import DataError

log = logging.getLogger(__name__)

NAMED = 5


def cleaning_table(report: Mapping[str, Any]) -> Iterator[str]:
    """How many pairs are left and why the others are not, line by line."""
    yield f"data: {report['read']:,} pairs read, {report['kept']:,} kept"
    for reason, count in report["left_out"].items():
        if count:
            yield f"  {reason:20} {count:>12,}  {100 * count / report['read']:6.2f} % left out"
    if report["truncated"]:
        yield f"  {'truncated':20} {report['truncated']:>12,}  {100 * report['truncated'] / report['read']:6.2f} % cut"


def refuse_nothing(name: str, report: Mapping[str, Any]) -> None:
    """A DataError with the reasons, if no training pair is left."""
    if not report["kept"]:
        left_out = ", ".join(f"{count} {reason}" for reason, count in report["left_out"].items() if count)
        raise DataError(
            f"{name}: no training pair is left of {report['read']} ({left_out or 'there were none'}); "
            f"see the cleaning settings, or give other files"
        )


def warn_of_over_budget(data: EncodedPairs, max_tokens: int, key: str) -> None:
    """Name the first sentences that are longer than a batch may be; each makes a batch of its own."""
    lengths = np.maximum(data.source_lengths, data.target_lengths)
    rows = np.flatnonzero(lengths > max_tokens)
    if len(rows):
        lines = ", ".join(f"line {data.row[row] + 1} ({lengths[row]} pieces)" for row in rows[:NAMED].tolist())
        log.warning(
            "%s: %d sentences are longer than %s=%d and make a batch each: %s%s",
            data.name,
            len(rows),
            key,
            max_tokens,
            lines,
            ", …" if len(rows) > NAMED else "",
        )


def judge_leaks(report: Mapping[str, Any], policy: str) -> None:
    """Warn of training pairs that share a side with a set that will be scored, or raise a DataError: see `policy`."""
    leaks = report["leaks"]
    if policy == "ignore" or not leaks or not leaks["training_pairs"]:
        return
    found = "; ".join(
        f"{name}: {counts['source']:,} of {counts['lines']:,} sources ({counts['source_exact']:,} letter by letter), "
        f"{counts['target']:,} targets ({counts['target_exact']:,})"
        for name, counts in leaks["sets"].items()
        if counts["source"] or counts["target"]
    )
    count = f"{leaks['training_pairs']:,} training pairs"
    message = f"data.leaks: {count} share a side with sentences that will be scored: {found}"
    if policy == "error":
        raise DataError(f"{message}; data.leaks=drop leaves these pairs out")
    log.warning("%s%s", message, " (left out)" if policy == "drop" else "; data.leaks=drop leaves these pairs out")
