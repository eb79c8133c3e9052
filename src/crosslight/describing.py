"""From a config to the description of its data: what `scripts/describe.py` shows. Needs no Lightning."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from crosslight import build
from crosslight.build import Config
from crosslight.config.check import check_config
from crosslight.config.rules import check_rules
from crosslight.data.encoded import EncodedPairs
from crosslight.description.measure import Description, describe_batches, describe_parts, describe_set, vocabularies_of
from crosslight.errors import ConfigError
from crosslight.preparing import Prepared, prepare
from crosslight.tokenizers.load import load_tokenizers

GROUPS = ("data", "cleaning", "batching", "tokenizer", "trainer")


def describe(config: Config, tokenizer_folder: Path | None = None, *, trusted_only: bool = False) -> Description:
    """Prepare the data as training would and look at it. Raises a ConfigError or RunError before any data is touched.

    `tokenizer_folder` is that of a run whose tokenizers shall be used; `trusted_only` is for configs of run folders.
    """
    check_config({group: config[group] for group in GROUPS}, trusted_only=trusted_only)
    check_rules(config)
    batching, window = build.build_batching(config), _window(config)
    if batching.shuffle_buffer is not None:
        raise ConfigError(
            "batching.shuffle_buffer: a stream is known only when it has been read to its end; describe it with "
            "batching.shuffle_buffer=null, which prepares all of it in the cache"
        )
    if batching.max_tokens == "auto":
        raise ConfigError(
            "batching.max_tokens: auto is known only where a model is about to be trained; give a number to "
            "describe the batches, such as batching.max_tokens=4096"
        )
    if tokenizer_folder is not None:
        load_tokenizers(tokenizer_folder)  # a run without any is an error here, no reason to learn them
    start = time.monotonic()
    prepared = prepare(config, tokenizer_folder)
    pairs = prepared.train
    assert isinstance(pairs, EncodedPairs)
    seconds = time.monotonic() - start
    tokenizers, tag_ids = prepared.tokenizers, prepared.tag_ids
    train = describe_set("train", pairs, tokenizers, tag_ids=tag_ids)
    names = list(prepared.report["parts"])
    parts = describe_parts(pairs, names, prepared.shares, tokenizers, tag_ids=tag_ids) if len(names) > 1 else []
    sets = {
        "validation": prepared.validation,
        **{name if name == "test" else f"test {name}": data for name, data in prepared.tests.items()},
    }
    evaluation = [describe_set(name, data, tokenizers, tag_ids=tag_ids) for name, data in sets.items()]
    budget = batching.budget
    batches = [
        describe_batches(pairs, tokens, window=window, seed=config["seed"], shares=prepared.shares)
        for tokens in sorted({max(1, budget // 2), budget, 2 * budget, 4 * budget})
    ]
    return Description(
        name=config["name"],
        source_lang=config["data"]["source_lang"],
        target_lang=config["data"]["target_lang"],
        train=train,
        parts=parts,
        evaluation=evaluation,
        vocabularies=vocabularies_of(train, tokenizers, tag_ids),
        batches=batches,
        max_tokens=budget,
        report=prepared.report,
        facts=_facts(config, prepared, window, seconds),
    )


def _window(config: Config) -> int:
    """How many micro-batches make an update. The precision has no say in that, and 16 would ask for a GPU."""
    node = {**config["trainer"], "precision": 32}
    if node["virtual_ranks"] is not None:  # then the machine has no say either
        node |= {"devices": 1, "num_nodes": 1}
    recipe = build.build_trainer_recipe({**config, "trainer": node})
    return recipe.accumulate * recipe.total_virtual_ranks


def _facts(config: Config, prepared: Prepared, window: int, seconds: float) -> dict[str, dict[str, str]]:
    tokenizers = prepared.tokenizers
    sides = [tokenizers.source] if tokenizers.joint else [tokenizers.source, tokenizers.target]
    tokenizer = {
        "kind": tokenizers.kind + (", one for both sides" if tokenizers.joint else ", one for each side"),
        "vocabulary size": " and ".join(f"{side.vocab_size:,}" for side in sides),
        "ids of pad, BOS, EOS": " and ".join(f"{side.pad_id}, {side.bos_id}, {side.eos_id}" for side in sides),
        "sha256": tokenizers.content_hash,
        **_plain(config["tokenizer"]),
    }
    batching = {**_plain(config["batching"]), "micro-batches an update": str(window), "seed": str(config["seed"])}
    report = prepared.report
    place = {
        "training text": report["name"],
        "prepared data": str(report.get("folder", Path(config["cache"]).expanduser() / "data")),
        "size on disk": f"{report['bytes'] / 1e6:,.1f} MB",
        "sha256 of the text": report["sha256"],
        "seconds, when it was prepared": f"{report['seconds']}",
        "seconds now, tokenizer and all sets": f"{seconds:.1f}",
    }
    return {
        "Tokenizer": tokenizer,
        "Cleaning": _plain(config["cleaning"]),
        "Batching": batching,
        "Where it lies": place,
    }


def _plain(node: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a config node as they are written on the command line."""
    shown = {True: "true", False: "false", None: "null"}
    return {
        key: shown[value] if value is None or isinstance(value, bool) else str(value)
        for key, value in node.items()
        if key != "_target_"
    }
