"""After the training and before the test: averages of weights compete with the best single checkpoint.

Each candidate is scored on the validation set as the checkpoints were during the training; the best one goes to
`best.ckpt`. Candidates are made of weights that were trained, never of an earlier average, so a finished run that is
resumed comes to the same end. See docs/decisions/averages.md.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from crosslight.callbacks.best import Best
from crosslight.callbacks.ema import EMA
from crosslight.errors import RunError
from crosslight.runs.averages import Averaging, average
from crosslight.runs.checkpoints import MODEL_PREFIX, load_checkpoint, model_weights, save_checkpoint
from crosslight.runs.folder import RunFolder, update_of
from crosslight.runs.record import Record
from crosslight.tasks.base import gather_objects
from crosslight.tasks.sharding import load_weights

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Candidate:
    """Weights that may become the final ones: `make` gives their checkpoint, unless `left_out` says why there is none.

    `updates` are those whose weights are averaged; none for the running mean.
    """

    name: str
    updates: list[int]
    make: Callable[[], dict[str, Any]]
    left_out: str | None = None


def choose_weights(
    trainer: Any, task: Any, data: Any, *, averaging: Averaging, folder: RunFolder, record: Record
) -> None:
    """Put the best candidate into `best.ckpt`, and the table of all into the log and the record.

    The best single checkpoint stays there unless another candidate is better. Every process takes part; rank 0 writes.
    """
    trainer.strategy.barrier()  # the files of the training are written
    best: Best = next(callback for callback in trainer.callbacks if isinstance(callback, Best))
    candidates = _candidates(trainer, task, best, averaging, folder)
    rows: list[dict[str, Any]] = [{"candidate": c.name, "updates": c.updates} for c in candidates]
    winner = 0
    alone = all(candidate.left_out for candidate in candidates[1:])
    for number, (candidate, row) in enumerate(zip(candidates, rows, strict=True)):
        checkpoint, problem = _made(candidate)
        if problem is not None:
            log.info("%s is left out: %s", candidate.name, problem)
            row["left_out"] = problem
        elif not alone:
            load_weights(task.model, model_weights(checkpoint))
            trainer.validate(task, data, verbose=False)
            row["score"] = float(trainer.callback_metrics[best.monitor])
            if best.is_better(row["score"], than=rows[winner].get("score", math.nan)):
                winner = number
                if number and trainer.is_global_zero:
                    _save(checkpoint, row, best.monitor, task, trainer.global_step, folder)
    for row in rows:
        if "score" in row and "score" in rows[0]:
            gain = row["score"] - rows[0]["score"]
            row["gain"] = gain if best.mode == "max" else 0 - gain
    name = rows[winner]["candidate"]
    record.update(averaging={"monitor": best.monitor, "winner": name, "candidates": rows})
    if not alone:
        log.info("weights for best.ckpt:\n%s\nthe test uses: %s", table(rows, best.monitor), name)
    trainer.strategy.barrier()  # best.ckpt is written


def _candidates(trainer: Any, task: Any, best: Best, averaging: Averaging, folder: RunFolder) -> list[Candidate]:
    """The best single checkpoint, then whatever competes with it."""
    kept = list(best.values)
    candidates = [
        Candidate("best single", kept[:1], lambda: load_checkpoint(folder.kept_at(kept[0])))
        if kept
        else Candidate("best single", [], dict, f"{folder.kept} has none of the files that the training kept")
    ]
    saved = [path for path in folder.updates_saved() if update_of(path) <= trainer.global_step]
    for which, wanted, paths in (
        ("last", averaging.last, saved[-averaging.last :]),
        ("best", averaging.best, [folder.kept_at(update) for update in sorted(kept[: averaging.best])]),
    ):
        updates = [update_of(path) for path in paths]
        left_out = next((f"the same as {c.name}" for c in candidates[1:] if c.updates == updates), None)
        if len(paths) < 2:
            left_out = f"there are {len(paths)} of the {wanted} checkpoints to average"
        if wanted:
            candidates.append(Candidate(f"{which} {len(paths)}", updates, partial(average, paths), left_out))
    for ema in (callback for callback in trainer.callbacks if isinstance(callback, EMA)):
        weights = {MODEL_PREFIX + name: tensor for name, tensor in ema.weights(task.model).items()}
        facts = {"state_dict": weights, "crosslight": task.checkpoint_facts}
        candidates.append(Candidate("ema", [], partial(dict, facts)))
    return candidates


def _made(candidate: Candidate) -> tuple[dict[str, Any], str | None]:
    """The candidate's checkpoint, or why there is none; every process says the same."""
    if candidate.left_out:
        return {}, candidate.left_out
    try:
        checkpoint, problem = candidate.make(), None
    except RunError as error:
        checkpoint, problem = {}, str(error)
    return checkpoint, next((other for other in gather_objects(problem) if other), None)


def _save(
    checkpoint: dict[str, Any], row: dict[str, Any], monitor: str, task: Any, update: int, folder: RunFolder
) -> None:
    """Make the weights that have just been scored those of `best.ckpt`."""
    scores = {name: score._asdict() for name, score in task.validation_result.scores.items()}
    facts = {"candidate": row["candidate"], "monitor": monitor, "value": row["score"], "scores": scores}
    save_checkpoint({**checkpoint, **facts, "update": max(row["updates"], default=update)}, folder.best)


def table(rows: Sequence[Mapping[str, Any]], monitor: str) -> str:
    """The candidates as text: what is averaged, its score, and how much better than the best single one it is."""
    cells = [("candidate", "updates", monitor, "gain")]
    for row in rows:
        updates = ", ".join(map(str, row["updates"])) or "-"
        score = f"{row['score']:.4g}" if "score" in row else "left out"
        cells.append((row["candidate"], updates, score, f"{row['gain']:+.3g}" if "gain" in row else ""))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(f"{a:{widths[0]}}  {b:{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}" for a, b, c, d in cells)
