"""A run from its config to its record: prepare the data, train, test the best checkpoint, write everything down.

`python -m crosslight.app FOLDER` is one of the further processes of a run that `train` has started.
"""

import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import yaml

from crosslight import build
from crosslight.budgeting import with_budget
from crosslight.build import Config
from crosslight.data.encoded import EncodedPairs
from crosslight.data.scripts import scripts_of
from crosslight.errors import CrosslightError, ExpectationError, RunError
from crosslight.metrics.translation import Score, check_target_language
from crosslight.models.encoder_decoder import parameters_by_part
from crosslight.preparing import Prepared, prepare
from crosslight.runs.attempt import attempt
from crosslight.runs.checkpoints import check_tokenizer, file_hash, load_checkpoint, model_weights
from crosslight.runs.folder import RunFolder
from crosslight.runs.launch import other_ranks, pinned_threads, rank, started_from_outside
from crosslight.runs.record import Record, hyper_parameters
from crosslight.runs.trainer import TrainerRecipe
from crosslight.tokenizers.base import Tokenizers

log = logging.getLogger(__name__)


def train(config: Config, folder: RunFolder) -> Record:
    """Train, or go on training, in a folder. Raises an ExpectationError if the recipe's mark is missed."""
    build.check(config)
    _check_language(config["data"]["target_lang"])
    recipe = build.build_trainer_recipe(config)
    recipe.check_machine()
    if started_from_outside() and rank() > 0:
        folder.wait_until_started()
        return join(folder)
    # from now on part of the run: a resume on another number of processes makes the same updates
    config = {**config, "trainer": {**config["trainer"], "virtual_ranks": recipe.total_virtual_ranks}}
    with attempt(folder, config["name"]) as record:
        folder.write_config(config)
        prepared = prepare(config, folder.tokenizer)
        config = with_budget(config, folder, recipe, prepared, record)
        with pinned_threads(recipe.threads_per_process), other_ranks(folder, recipe.processes):
            _fit_and_test(config, folder, recipe, prepared, record)
    log.info("\n%s", score_table(record.content["scores"]))
    _judge(config, record)
    return record


def _check_language(lang: str) -> None:
    """Fail if the scorer cannot take a target language; warn if nobody knows it, for then it takes the usual tokens."""
    check_target_language(lang)
    if scripts_of(lang) is None and lang not in ("symbols", "mul"):
        log.warning(
            "data.target_lang: %r is no language code known here; BLEU will use sacreBLEU's 13a tokenizer", lang
        )


def _fit_and_test(config: Config, folder: RunFolder, recipe: TrainerRecipe, prepared: Prepared, record: Record) -> None:
    """What every process of a run does."""
    from lightning.pytorch import seed_everything
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    from crosslight.data.module import TranslationData

    _quiet()
    seed_everything(config["seed"], verbose=False)
    tokenizers = prepared.tokenizers
    model = build.build_model(config, tokenizers)
    parts = parameters_by_part(model)
    log.info("model: %s parameters (%s)", f"{sum(parts.values()):,}", ", ".join(f"{k} {v:,}" for k, v in parts.items()))
    task = build.build_task(
        config,
        model=model,
        search=build.build_search(config),
        tokenizers=tokenizers,
        recipe=recipe,
        test_langs={name: test.target_lang or config["data"]["target_lang"] for name, test in prepared.tests.items()},
    )
    task.checkpoint_facts = {"tokenizer_sha256": tokenizers.content_hash, "config": dict(config)}
    data = TranslationData(
        train=prepared.train,
        validation=prepared.validation,
        tests=prepared.tests,
        tokenizers=tokenizers,
        batching=build.build_batching(config),
        shares=prepared.shares,
        resampled=prepared.resampled,
        seed=config["seed"],
        virtual_ranks=recipe.total_virtual_ranks,
        accumulate=recipe.accumulate,
    )
    checkpoint, update = _resume_point(config, folder, tokenizers)
    loggers = build.build_loggers(config, folder.path, update=update) if rank() == 0 else []
    trainer = recipe.build(folder, build.build_callbacks(config, recipe), loggers)
    start = time.monotonic()
    record.training = True
    trainer.fit(task, data, ckpt_path=checkpoint)
    if trainer.interrupted:
        raise KeyboardInterrupt
    _record_training(record, config, prepared, trainer, parts, time.monotonic() - start)
    weights = load_checkpoint(folder.best)
    restored: dict[str, Any] = {**model_weights(weights)}
    set_model_state_dict(model, restored, options=StateDictOptions(full_state_dict=True))  # FSDP takes its part of it
    if prepared.tests:
        trainer.test(task, data, verbose=False)
    _record_scores(record, folder, task, weights)
    _log_hyperparameters(config, record, loggers)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _resume_point(config: Config, folder: RunFolder, tokenizers: Tokenizers) -> tuple[Path | None, int]:
    """The newest checkpoint of the folder, if there is one, and after which update it was saved."""
    saved = folder.updates_saved()
    if not saved:
        return None, 0
    checkpoint = load_checkpoint(saved[-1])
    check_tokenizer(checkpoint, tokenizers.content_hash, saved[-1])
    for key, value in checkpoint["crosslight"]["config"]["model"].items():
        if config["model"].get(key) != value and not key.endswith("dropout"):
            raise RunError(
                f"resume: model.{key} was {value} and is now {config['model'].get(key)}; a run keeps its model"
            )
    log.info("resuming from %s", saved[-1])
    return saved[-1], checkpoint["global_step"]


def _record_training(
    record: Record,
    config: Config,
    prepared: Prepared,
    trainer: Any,
    parts: dict[str, int],
    seconds: float,
) -> None:
    from crosslight.callbacks.progress import Progress

    progress = next((c for c in trainer.callbacks if isinstance(c, Progress)), None)
    trained = progress.training_seconds if progress else seconds
    record.update(
        updates=trainer.global_step,
        processes=trainer.world_size,
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


def _record_scores(record: Record, folder: RunFolder, task: Any, weights: dict[str, Any]) -> None:
    from crosslight.data.lines import write_lines

    if rank():
        return
    best = {"file": str(folder.best.relative_to(folder.path)), "sha256": file_hash(folder.best)}
    record.update(checkpoint=best | {key: weights[key] for key in ("update", "monitor", "value")})
    record.add_scores("validation", "validation", {k: Score(**v) for k, v in weights["scores"].items()})
    folder.hypotheses.mkdir(exist_ok=True)
    for name, result in task.test_results.items():
        record.add_scores("test", name, result.scores)
        write_lines(folder.hypotheses / f"{name}.txt", result.hypotheses)


def _log_hyperparameters(config: Config, record: Record, loggers: list[Any]) -> None:
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
            logger.log_hyperparams(hyper_parameters(config), final)
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


def _judge(config: Config, record: Record) -> None:
    """Print what the recipe promises beside what came out, and raise if it is less."""
    for metric, promised in (config["expect"] or {}).items():
        for test_set, scores in record.content["scores"].get("test", {}).items():
            value = scores[metric]["value"]
            log.info("%s on %s: %.1f %%, expected %.1f %%", metric, test_set, value, promised)
            if value < promised:
                raise ExpectationError(
                    f"{metric} on {test_set} is {value:.1f} %, but this recipe should reach {promised:.1f} % "
                    f"(after {record.content['updates']} updates; expect=null turns the check off)"
                )


def _quiet() -> None:
    """Lightning's and torch's messages that a user can do nothing about."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for text in (
        ".*does not have many workers.*",
        ".*recommended to use .*sync_dist=True.*",
        ".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*",
        ".*number of training batches .* is smaller than the logging interval.*",
        ".*GPU available but not used.*",
        ".*resuming from a checkpoint that ended before the epoch ended.*",  # our position is in the data module
    ):
        warnings.filterwarnings("ignore", text)


def join(folder: RunFolder) -> Record:
    """Take part in a run as a rank above 0: everything but writing."""
    config = yaml.safe_load(folder.config.read_text(encoding="utf-8"))
    logging.basicConfig(level=logging.WARNING, format=f"[rank {rank()}] %(message)s")
    recipe = build.build_trainer_recipe(config)
    record = Record(folder.record, writes=False)
    prepared = prepare(config, folder.tokenizer)
    if config["batching"]["max_tokens"] == "auto":  # torchrun has started us while rank 0 is measuring
        config = folder.wait_for_budget()
    with pinned_threads(recipe.threads_per_process):
        _fit_and_test(config, folder, recipe, prepared, record)
    return record


if __name__ == "__main__":
    try:
        join(RunFolder(sys.argv[1]))
    except CrosslightError as error:
        sys.exit(f"error: {error}")
