"""A run from its config to its record: prepare the data, train, test the best checkpoint, write everything down.

`python -m crosslight.app PARENT` is one of the further processes of a run that the process PARENT has started.
"""

import logging
import sys
import time
import warnings
from typing import Any

import torch
import yaml

from crosslight import build
from crosslight.build import Config
from crosslight.data.encoded import EncodedPairs
from crosslight.data.scripts import scripts_of
from crosslight.errors import CrosslightError, ExpectationError
from crosslight.inference import load_run
from crosslight.metrics.translation import Score, check_target_language
from crosslight.models.encoder_decoder import parameters_by_part
from crosslight.objectives.distillation import with_absolute_teacher
from crosslight.preparing import Prepared, prepare
from crosslight.runs.attempt import attempt
from crosslight.runs.checkpoints import file_hash, load_checkpoint, model_weights
from crosslight.runs.exactness import circumstances, differences, doubts, price_of_determinism
from crosslight.runs.folder import RunFolder, write_atomically
from crosslight.runs.launch import end_with, other_ranks, pinned_threads
from crosslight.runs.meeting import Meeting, of_launch
from crosslight.runs.ranks import rank
from crosslight.runs.record import Record, hyper_parameters
from crosslight.runs.resuming import resume_point
from crosslight.runs.signals import interruption
from crosslight.runs.trainer import TrainerRecipe

log = logging.getLogger(__name__)

MOST_ROLLBACKS = 3


def train(config: Config, folder: RunFolder) -> Record:
    """Train, or go on training, in a folder. Raises an ExpectationError if the recipe's mark is missed."""
    build.check(config)
    _check_language(config["data"]["target_lang"])
    recipe = build.build_trainer_recipe(config)
    recipe.check_machine()
    # from now on part of the run: a resume on another number of processes makes the same updates
    config = {**config, "trainer": {**config["trainer"], "virtual_ranks": recipe.total_virtual_ranks}}
    config |= {"task": with_absolute_teacher(config["task"])}
    with attempt(folder, config["name"]) as record:
        write_atomically(folder.config, yaml.safe_dump(config, sort_keys=False, allow_unicode=True).encode())
        prepared = prepare(config, folder.tokenizer)
        with pinned_threads(recipe.threads_per_process), other_ranks(folder, recipe.processes) as meeting:
            if meeting:
                meeting.agree(_facts(folder, prepared))
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

    from crosslight.data.module import TranslationData
    from crosslight.endgame import choose_weights
    from crosslight.tasks.sharding import load_weights

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
        load_run=load_run,
    )
    if recipe.deterministic:
        log.info("%s", price_of_determinism(recipe, sum(parts.values())))
    task.skips_out_of_memory = recipe.on_oom == "skip"
    task.checkpoint_facts = {
        "tokenizer_sha256": tokenizers.content_hash,
        "config": dict(config),
        "circumstances": circumstances(recipe),
    }
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
    start = time.monotonic()
    trainer, loggers = _fit(config, folder, recipe, task, data, record)
    _record_training(record, config, prepared, trainer, parts, time.monotonic() - start)
    choose_weights(trainer, task, data, averaging=build.build_averaging(config), folder=folder, record=record)
    weights = load_checkpoint(folder.best)
    load_weights(model, model_weights(weights))
    if prepared.tests:
        trainer.test(task, data, verbose=False)
    _record_scores(record, folder, task, weights)
    _log_hyperparameters(config, record, loggers)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _fit(
    config: Config, folder: RunFolder, recipe: TrainerRecipe, task: Any, data: Any, record: Record
) -> tuple[Any, list[Any]]:
    """Train from the newest checkpoint to the end; gives the trainer and its loggers.

    With `trainer.on_divergence=rollback` a divergence resumes from the newest checkpoint, at most `MOST_ROLLBACKS`
    times: with half the learning rate from there on, and without the sentences of the update that diverged.
    """
    from lightning.pytorch.callbacks import LambdaCallback

    from crosslight.callbacks.divergence import DivergedError

    begins = LambdaCallback(on_train_start=lambda *_: setattr(record, "training", True))
    rollbacks: list[dict[str, Any]] = []
    while True:
        point = resume_point(folder, config, data.tokenizers.content_hash)
        update = point.update if point else 0
        changes = differences(point.circumstances, recipe, update) if point else []
        for change in changes:
            log.warning("resume: the bits may differ from those of a run that was not resumed; %s", change)
        earlier = record.content.get("bits_may_differ") if point else None
        record.update(bits_may_differ=[*(doubts(recipe) if earlier is None else earlier), *changes])
        loggers = build.build_loggers(config, folder.path, update=update) if rank() == 0 else []
        callbacks = [begins, *build.build_callbacks(config, recipe)]
        trainer = recipe.build(folder, callbacks, loggers, resumed=point.content if point else None)
        try:
            trainer.fit(task, data, ckpt_path=point.path if point else None)
        except DivergedError as error:
            if recipe.on_divergence == "stop" or len(rollbacks) == MOST_ROLLBACKS or not folder.updates_saved():
                raise
            task.left_out.add(error.position)
            task.rate_factor /= 2
            rollbacks.append({"error": str(error), "rate_factor": task.rate_factor})
            log.warning("%s; rolling back, with %g times the learning rate and without them", error, task.rate_factor)
            continue
        record.update(rollbacks=rollbacks, skipped=task.skipped)
        return trainer, loggers


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
        nodes=trainer.num_nodes,
        virtual_ranks=trainer.datamodule.virtual_ranks,
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
    best["candidate"] = weights.get("candidate", "best single")
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
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for text in (
        ".*does not have many workers.*",
        ".*recommended to use .*sync_dist=True.*",
        ".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*",
        ".*number of training batches .* is smaller than the logging interval.*",
        ".*GPU available but not used.*",
        ".*resuming from a checkpoint that ended before the epoch ended.*",  # our position is in the data module
    ):
        warnings.filterwarnings("ignore", text)


def _facts(folder: RunFolder, prepared: Prepared) -> dict[str, str]:
    """What all processes of a run must have alike, whichever disk they have it from."""
    sets = {"validation set": prepared.validation} | {f"test set {name}": data for name, data in prepared.tests.items()}
    return {
        "the config (sha256)": file_hash(folder.config),
        "the newest checkpoint": ", ".join(path.name for path in folder.updates_saved()[-1:]) or "none",
        "the tokenizer (sha256)": prepared.tokenizers.content_hash,
        "the training data (sha256)": prepared.train.content_hash,
        **{f"the {name} (sha256)": data.content_hash for name, data in sets.items()},
        "the version of torch": torch.__version__,
    }


def follow() -> None:
    """Take part in the run of rank 0, as all processes above it do; in which folder, rank 0 tells."""
    logging.basicConfig(level=logging.WARNING, format=f"[rank {rank()}] %(message)s")
    try:
        with interruption.handled(), of_launch() as meeting, meeting.explaining():
            join(RunFolder(meeting.ask("folder")), meeting)
    except CrosslightError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


def join(folder: RunFolder, meeting: Meeting) -> None:
    """Do everything that rank 0 does in this folder, but writing."""
    folder.wait_until_seen()
    config = folder.read_config()
    recipe = build.build_trainer_recipe(config)
    recipe.check_machine()
    with pinned_threads(recipe.threads_per_process):
        prepared = prepare(config, folder.tokenizer)
        meeting.agree(_facts(folder, prepared))
        _fit_and_test(config, folder, recipe, prepared, Record(folder.record, writes=False))


if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    follow()
