"""From config nodes to objects, in dependency order: the only file that calls `instantiate`.

Runtime values (vocabulary sizes, pad id) flow once, from the tokenizers to the rest.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate

from crosslight.config.check import check_config, locate
from crosslight.config.compose import plain as plain
from crosslight.config.rules import check_rules, longest_sequence
from crosslight.data.batching import Batching
from crosslight.data.cleaning import Cleaning
from crosslight.data.corpus import Corpus
from crosslight.decoding.protocols import Search
from crosslight.errors import ConfigError, CrosslightError, RunError
from crosslight.nn.initialization import Unfilled
from crosslight.objectives.base import Objective
from crosslight.runs.averages import Averaging
from crosslight.runs.folder import RunFolder
from crosslight.runs.precision import chosen_precision
from crosslight.runs.trainer import TrainerRecipe
from crosslight.tasks.reduction import FastReduction, OrderedReduction
from crosslight.tokenizers.base import TokenizerRecipe, Tokenizers

Config = Mapping[str, Any]

AFTER_TRAINING = ("model", "data", "batching", "tokenizer", "scheduler", "decode", "trainer")
"""The groups whose classes a trained run needs; the others would import Lightning."""


def check(config: Config, *, trusted_only: bool = False) -> None:
    """All that can be found wrong in a config without touching data. Raises a ConfigError."""
    used = {group: config[group] for group in AFTER_TRAINING} if trusted_only else config
    check_config(used, trusted_only=trusted_only)
    check_rules(config)
    build_search(config)
    make(config["scheduler"])
    build_batching(config)
    with Unfilled():  # only to see whether it can be built
        make(config["model"], source_vocab_size=8, target_vocab_size=8, pad_id=0)
    if not trusted_only:  # what only training needs, on the machine that trains
        build_callbacks(config, build_trainer_recipe(config))
        build_averaging(config)
        build_cleaning(config)
        build_tokenizer_recipe(config)
        if "objective" in config["task"]:
            build_objective(config, pad_id=0, load_teacher=_teacher_to_come)
        try:
            make(config["optimizer"])([torch.nn.Parameter(torch.zeros(1))])
        except (TypeError, ValueError) as error:
            raise ConfigError(f"optimizer: {error}") from error


def make(node: Config, **runtime: Any) -> Any:
    """The object that a node describes, with runtime values filled in.

    They go to the constructor directly: through `instantiate` they would be copied.
    """
    try:
        if not runtime:
            return instantiate(dict(node), _convert_="all")
        return instantiate({**node, "_partial_": True}, _convert_="all")(**runtime)
    except InstantiationException as error:
        if isinstance(error.__cause__, CrosslightError):  # said in our words already
            raise error.__cause__ from None
        raise ConfigError(f"{node['_target_']}: {error.__cause__ or error}") from error
    except ValueError as error:
        raise ConfigError(f"{node['_target_']}: {error}") from error


def build_corpus(config: Config) -> Corpus:
    """Where the sentence pairs come from; nothing is read yet."""
    return make(config["data"])


def build_cleaning(config: Config) -> Cleaning:
    """What training pairs must be like."""
    return make(config["cleaning"])


def build_batching(config: Config) -> Batching:
    """How text is cut into batches."""
    return make(config["batching"])


def build_tokenizer_recipe(config: Config) -> TokenizerRecipe:
    """The tokenizer before it has seen text."""
    return make(config["tokenizer"])


def build_trainer_recipe(config: Config) -> TrainerRecipe:
    """Where and how long to train, `trainer.precision=auto` decided."""
    node = config["trainer"]
    if node["precision"] == "auto":
        on_gpu = make(node).on_gpu
        node = {**node, "precision": chosen_precision(config["model"], on_gpu=on_gpu)[0]}
    return make(node, unused_parameters=bool(config["model"].get("layer_drop")))


def build_averaging(config: Config) -> Averaging:
    """Which averages of checkpoints compete after the training."""
    return make(config["averaging"])


def build_search(config: Config) -> Search:
    """How translations are found."""
    return make(config["decode"])


def build_model(config: Config, tokenizers: Tokenizers) -> Any:
    """The model with fresh weights."""
    return make(
        config["model"],
        source_vocab_size=tokenizers.source.vocab_size,
        target_vocab_size=tokenizers.target.vocab_size,
        pad_id=tokenizers.source.pad_id,
    )


def build_objective(config: Config, **runtime: Any) -> Objective:
    """How training scores a micro-batch; the constructor gets those of the runtime values that it names."""
    node = config["task"]["objective"]
    wanted = inspect.signature(locate("task.objective", node["_target_"])).parameters
    return make(node, **{name: value for name, value in runtime.items() if name in wanted})


def _teacher_to_come(path: str) -> torch.nn.Module:
    """Stands for a teacher before there is data: sees only whether its run is there."""
    folder = RunFolder.existing(path, "task.objective.teacher")
    if not folder.best.is_file():
        raise RunError(f"task.objective.teacher={path}: this run has no checkpoints/{folder.best.name} yet")
    return torch.nn.Identity()


def _load_teacher(path: str, config: Config, tokenizers: Tokenizers, load_run: Callable[[str], Any]) -> torch.nn.Module:
    """The model of a run that reads and writes what the student does."""
    run = load_run(path)
    if run.tokenizers.content_hash != tokenizers.content_hash:
        raise RunError(
            f"task.objective.teacher={path}: has other tokenizers than this run, so its predictions mean other pieces; "
            f"train both on the same data with the same tokenizer settings"
        )
    limit, longest = run.model.max_positions, longest_sequence(config)
    if limit is not None and limit < longest:
        raise RunError(
            f"task.objective.teacher={path}: knows {limit} positions, but cleaning.max_len="
            f"{config['cleaning']['max_len']} lets sequences have {longest}; take a smaller cleaning.max_len"
        )
    return run.model


def build_task(
    config: Config,
    *,
    model: Any,
    search: Search,
    tokenizers: Tokenizers,
    recipe: TrainerRecipe,
    test_langs: dict[str, str],
    load_run: Callable[[str], Any],
) -> Any:
    """The LightningModule around a model. `load_run` gives an objective the trained run in a folder."""
    runtime = {}
    if "objective" in config["task"]:
        runtime["objective"] = build_objective(
            config,
            pad_id=tokenizers.target.pad_id,
            load_teacher=lambda path: _load_teacher(path, config, tokenizers, load_run),
        )
    return make(
        {key: value for key, value in config["task"].items() if key not in runtime},
        **runtime,
        model=model,
        search=search,
        tokenizer=tokenizers.target,
        target_lang=config["data"]["target_lang"],
        test_langs=test_langs,
        optimizer=make(config["optimizer"]),
        schedule=make(config["scheduler"]),
        reduction=OrderedReduction(recipe.accumulate) if recipe.ordered else FastReduction(overlap=recipe.overlap),
        clip=recipe.gradient_clip_val,
        seed=config["seed"],
    )


def build_callbacks(config: Config, recipe: TrainerRecipe) -> list[Any]:
    """The configured callbacks; what may end the training comes first."""
    from crosslight.callbacks.divergence import Divergence
    from crosslight.callbacks.stopping import StopAt

    stop = StopAt(max_steps=recipe.max_steps, max_epochs=recipe.max_epochs, max_time=recipe.max_time)
    return [Divergence(), stop, *(make(node) for node in config["callbacks"].values())]


def build_loggers(config: Config, folder: Path, update: int) -> list[Any]:
    """The configured loggers, all writing below the run folder, from the next update on.

    TensorBoard forgets what a killed run has logged after `update`; Lightning's CSV logger would delete its old table,
    so it begins another beside it.
    """
    loggers = []
    for kind, node in (config["logger"] or {}).items():
        runtime: dict[str, Any] = {"save_dir": str(folder), "name": kind, "version": ""}
        if kind == "tensorboard":
            runtime["purge_step"] = update + 1
        elif update:
            runtime["version"] = f"from_update_{update}"
        loggers.append(make(node, **runtime))
    return loggers
