"""A run from its config to its record: prepare the data, train, test the best checkpoint, write everything down.

`python -m crosslight.app PARENT` is one of the further processes of a run that the process PARENT has started.
"""

import gc
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from crosslight import build
from crosslight.budgeting import with_budget
from crosslight.build import Config
from crosslight.data.scripts import scripts_of
from crosslight.errors import CrosslightError, ExpectationError
from crosslight.inference import load_run
from crosslight.metrics.translation import check_target_language
from crosslight.models.encoder_decoder import parameters_by_part
from crosslight.objectives.distillation import with_absolute_teacher
from crosslight.preparing import Prepared, prepare
from crosslight.recording import log_hyperparameters, record_scores, record_training, score_table
from crosslight.runs.attempt import attempt
from crosslight.runs.checkpoints import file_hash, load_checkpoint, model_weights
from crosslight.runs.compiling import compile_layers
from crosslight.runs.exactness import circumstances, differences, doubts, price_of_determinism
from crosslight.runs.folder import RunFolder
from crosslight.runs.launch import end_with, other_ranks, pinned_threads
from crosslight.runs.meeting import Meeting, of_launch
from crosslight.runs.precision import chosen_precision
from crosslight.runs.ranks import rank
from crosslight.runs.record import Record
from crosslight.runs.resuming import check_learnt, resume_point
from crosslight.runs.signals import interruption
from crosslight.runs.trainer import TrainerRecipe
from crosslight.runs.warm_start import take_tokenizer, take_weights

log = logging.getLogger(__name__)

MOST_ROLLBACKS = 3


def train(config: Config, folder: RunFolder) -> Record:
    """Train, or go on training, in a folder. Raises an ExpectationError if the recipe's mark is missed."""
    build.check(config)
    gc.enable()  # all is imported now; train.py has turned it off
    _check_language(config["data"]["target_lang"])
    recipe = build.build_trainer_recipe(config)
    recipe.check_machine()
    if (precision := config["trainer"]["precision"]) == "auto":
        precision, reason = chosen_precision(config["model"], on_gpu=recipe.on_gpu)
        log.info("trainer.precision: %s, for %s", precision, reason)
    # from now on part of the run: a resume on another number of processes makes the same updates
    found = {"virtual_ranks": recipe.total_virtual_ranks, "precision": precision}
    config = {**config, "trainer": {**config["trainer"], **found}}
    config |= {"task": with_absolute_teacher(config["task"])}
    if config["init_from"]:  # found again, whatever folder a resume starts in
        config |= {"init_from": str(Path(config["init_from"]).expanduser().absolute())}
    with attempt(folder, config["name"]) as record:
        check_learnt(folder, config)
        folder.write_config(config)
        if config["init_from"] and not folder.updates_saved():
            take_tokenizer(config["init_from"], folder)
        prepared = prepare(config, folder.tokenizer)
        config = with_budget(config, folder, recipe, prepared, record)
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
    if recipe.compile:
        compile_layers(model)
    if config["init_from"] and not folder.updates_saved():
        take_weights(config["init_from"], model, tokenizers.content_hash)
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
    record_training(record, config, prepared, trainer, parts, time.monotonic() - start)
    choose_weights(trainer, task, data, averaging=build.build_averaging(config), folder=folder, record=record)
    weights = load_checkpoint(folder.best)
    load_weights(model, model_weights(weights))
    if prepared.tests:
        trainer.test(task, data, verbose=False)
    record_scores(record, folder, task, weights)
    log_hyperparameters(config, record, loggers)
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
    rolled_back = 0
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
            if recipe.on_divergence == "stop" or rolled_back == MOST_ROLLBACKS or not folder.updates_saved():
                raise
            task.left_out.add(error.position)
            task.rate_factor /= 2
            rolled_back += 1
            task.rollbacks.append({"error": str(error), "rate_factor": task.rate_factor})
            log.warning("%s; rolling back, with %g times the learning rate and without them", error, task.rate_factor)
            continue
        record.update(rollbacks=task.rollbacks, skipped=task.skipped)
        return trainer, loggers


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
        ".*FSDP2-wrapped module .* returned a view tensor.*",  # a layer's new keys and values, never changed in place
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
