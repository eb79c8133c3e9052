"""`batching.max_tokens=auto` of a run: from its config and data to the number that stands there from then on."""

import logging
from dataclasses import asdict, replace

from crosslight import build
from crosslight.build import Config
from crosslight.data.encoded import EncodedPairs
from crosslight.errors import ConfigError
from crosslight.inference import load_run
from crosslight.preparing import Prepared
from crosslight.runs.folder import RunFolder
from crosslight.runs.record import Record
from crosslight.runs.trainer import TrainerRecipe

log = logging.getLogger(__name__)


def with_budget(config: Config, folder: RunFolder, recipe: TrainerRecipe, prepared: Prepared, record: Record) -> Config:
    """The config with the number that was found, which the folder and the record keep; without `auto` as it is.

    For rank 0 before the others start: they read the number in the folder. Weights and random numbers of the run do not
    depend on it, for they are seeded after it.
    """
    if config["batching"]["max_tokens"] != "auto":
        return config
    if recipe.nodes > 1:
        raise ConfigError(
            f"batching.max_tokens: auto measures a whole model on one machine and cannot speak for {recipe.nodes}; "
            f"give a number, such as the one that a run on one machine finds"
        )
    from crosslight.runs.budget import Shapes, find_budget, growth_of, shapes_of  # not before Lightning is wanted

    train, tokenizers = prepared.train, prepared.tokenizers
    allowed = config["cleaning"]["max_len"] + 1 + bool(prepared.tag_ids)
    shapes = shapes_of(train) if isinstance(train, EncodedPairs) else Shapes(allowed, 1, None)
    if prepared.resampled is not None:
        growth = growth_of(prepared.validation, tokenizers, prepared.resampled)
        shapes = replace(shapes, longest=allowed, growth=growth)
    task = build.build_task(
        config,
        model=build.build_model(config, tokenizers),
        search=build.build_search(config),
        tokenizers=tokenizers,
        recipe=recipe,
        test_langs={},
        load_run=load_run,
    )
    found = find_budget(task, recipe, shapes, token=tokenizers.target.eos_id)
    log.info("batching.max_tokens: auto takes %d; %s", found.max_tokens, found.because)
    config = {**config, "batching": {**config["batching"], "max_tokens": found.max_tokens}}
    folder.write_config(config)
    record.update(budget=asdict(found))
    return config
