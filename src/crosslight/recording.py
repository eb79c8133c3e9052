"""What a run has come to: how it was trained and what it scored, for its record and its loggers."""

from typing import Any

import torch

from crosslight.build import Config
from crosslight.data.encoded import EncodedPairs
from crosslight.metrics.translation import Score
from crosslight.preparing import Prepared
from crosslight.runs.checkpoints import file_hash
from crosslight.runs.folder import RunFolder
from crosslight.runs.ranks import rank
from crosslight.runs.record import Record, hyper_parameters


def record_training(
    record: Record,
    config: Config,
    prepared: Prepared,
    trainer: Any,
    parts: dict[str, int],
    seconds: float,
) -> None:
    """How long, how fast, on what and with which data a run was trained."""
    from crosslight.callbacks.progress import Progress

    progress = next((c for c in trainer.callbacks if isinstance(c, Progress)), None)
    trained = progress.training_seconds if progress else seconds
    record.update(
        updates=trainer.global_step,
        processes=trainer.world_size,
        nodes=trainer.num_nodes,
        virtual_ranks=trainer.datamodule.virtual_ranks,
        max_tokens=config["batching"]["max_tokens"],
        threads=torch.get_num_threads(),
        precision=str(trainer.precision),
        epochs=trainer.current_epoch,
        training_seconds=round(trained, 2),
        target_tokens=progress.tokens if progress else None,
        target_tokens_per_second=round(progress.tokens / max(trained, 1e-9), 1) if progress else None,
        parameters={"total": sum(parts.values()), **parts},
        decode=config["decode"],
        tokenizer_sha256=prepared.tokenizers.content_hash,
        data={
            "train": {
                "name": prepared.train.name,
                "pairs": prepared.report["kept"],
                "sha256": prepared.train.content_hash,
                **{key: prepared.report[key] for key in ("read", "left_out", "truncated", "parts", "leaks")},
            },
            "validation": _description(prepared.validation),
            "test": {name: _description(test) for name, test in prepared.tests.items()},
        },
    )


def _description(data: EncodedPairs) -> dict[str, Any]:
    return {"name": data.name, "lines": len(data), "sha256": data.content_hash}


def record_scores(record: Record, folder: RunFolder, task: Any, weights: dict[str, Any]) -> None:
    """The final weights, all scores, and the translations of the test sets."""
    from crosslight.data.lines import write_lines

    if rank():
        return
    best = {"file": str(folder.best.relative_to(folder.path)), "sha256": file_hash(folder.best)}
    best["candidate"] = weights.get("candidate", "best single")
    record.update(checkpoint=best | {key: weights[key] for key in ("update", "monitor", "value")})
    record.add_scores("validation", "validation", {k: Score(**v) for k, v in weights["scores"].items()})
    folder.hypotheses.mkdir(exist_ok=True)
    for name, result in task.test_results.items():
        record.add_scores("test", name, result.scores)
        write_lines(folder.hypotheses / f"{name}.txt", result.hypotheses)


def log_hyperparameters(config: Config, record: Record, loggers: list[Any]) -> None:
    """The hyper-parameters with the final scores, for TensorBoard's HPARAMS page."""
    from lightning.pytorch.loggers import TensorBoardLogger

    final = {
        f"final/{split}/{test_set}/{metric}": score["value"]
        for split, sets in record.content.get("scores", {}).items()
        for test_set, scores in sets.items()
        for metric, score in scores.items()
    }
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(hyper_parameters(config), final, step=record.content["updates"])
            logger.save()


def score_table(scores: dict[str, Any]) -> str:
    """The scores of a record as text, one line a number with its signature."""
    rows = [
        (f"{split} {test_set}", metric, f"{score['value']:.4f}" if metric == "loss" else f"{score['value']:.2f}", score)
        for split, sets in scores.items()
        for test_set, metrics in sets.items()
        for metric, score in metrics.items()
    ]
    width = max((len(row[0]) for row in rows), default=0)
    return "\n".join(f"{r[0]:{width}}  {r[1]:11}  {r[2]:>8}  {r[3]['signature']}" for r in rows)
