"""Rules that span groups, checked before any data is touched; a class's own rules stay in its constructor."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from crosslight.config.check import nearest
from crosslight.config.root import RunConfig
from crosslight.errors import ConfigError


def check_rules(config: Mapping[str, Any]) -> None:
    """Raise a ConfigError for groups that do not fit each other."""
    _check_root(config)
    model, data, tokenizer, callbacks = (config[g] for g in ("model", "data", "tokenizer", "callbacks"))
    if model.get("tie") == "all" and tokenizer.get("joint") is False:
        raise ConfigError(
            "model.tie: 'all' shares one table for both sides, but tokenizer.joint=false makes two vocabularies; "
            "use tokenizer.joint=true or model.tie=target_output"
        )
    limit = model.get("positions", {}).get("max_positions")
    longest = longest_sequence(config)
    if limit is not None and limit < longest:
        raise ConfigError(
            f"model.positions.max_positions: {limit} does not cover cleaning.max_len={config['cleaning']['max_len']} "
            f"and EOS; take at least {longest}, or a smaller cleaning.max_len"
        )
    if "num_symbols" in data and "num_symbols" in tokenizer and tokenizer["num_symbols"] < data["num_symbols"]:
        raise ConfigError(
            f"tokenizer.num_symbols: {tokenizer['num_symbols']} is fewer than data.num_symbols={data['num_symbols']}"
        )
    if model.get("layer_drop") and config["trainer"]["strategy"] == "fsdp":
        raise ConfigError(
            "model.layer_drop: processes skip different layers, but trainer=fsdp needs all of them in each layer; "
            "give model.layer_drop=0, or trainer=ddp"
        )
    for metric in config.get("expect") or {}:
        if metric not in ("bleu", "chrf", "exact_match"):
            raise ConfigError(f"expect.{metric}: not a test score; there are bleu, chrf, exact_match")
    for name, callback in (callbacks or {}).items():
        monitor = callback.get("monitor")
        if monitor is not None and monitor not in MONITORED:
            raise ConfigError(f"callbacks.{name}.monitor: {monitor!r} is not one of {', '.join(MONITORED)}")
        better = "min" if monitor == "val/loss" else "max"
        if monitor is not None and callback.get("mode", better) != better:
            raise ConfigError(
                f"callbacks.{name}.mode: {callback['mode']!r} would keep the worst {monitor}; "
                f"give callbacks.{name}.mode={better}"
            )
    for which, (callback, setting) in {"last": ("saver", "keep_last"), "best": ("best", "keep")}.items():
        wanted, kept = config["averaging"].get(which, 0), (callbacks or {}).get(callback, {}).get(setting)
        if kept is not None and wanted > kept:
            raise ConfigError(
                f"averaging.{which}: {wanted} is more than callbacks.{callback}.{setting}={kept} checkpoints, which "
                f"stay; give averaging.{which}={kept if kept > 1 else 0}, or a larger callbacks.{callback}.{setting}"
            )
    total, steps = config["scheduler"].get("total_steps"), config["trainer"]["max_steps"]
    if total is not None and total < steps:
        raise ConfigError(
            f"scheduler.total_steps: {total} ends before trainer.max_steps={steps}; "
            f"give scheduler.total_steps={steps} as well"
        )
    if config["batching"].get("max_tokens") == "auto":
        _check_auto(config["trainer"])
    if str(config["trainer"]["precision"]).startswith("16") and config["optimizer"].get("fused") is False:
        raise ConfigError("optimizer.fused: trainer.precision=16 needs optimizer.fused=true")


def longest_sequence(config: Mapping[str, Any]) -> int:
    """How many tokens a training sentence can have, with EOS and the tag of a language."""
    return config["cleaning"]["max_len"] + 1 + bool(config["data"].get("tags"))


def _check_auto(trainer: Mapping[str, Any]) -> None:
    """The budget is found on rank 0, with a whole model, before the other processes start."""
    several, sharded = trainer["num_nodes"] not in (1, "auto"), trainer["strategy"] == "fsdp"
    if several or sharded:
        reason = f"trainer.num_nodes={trainer['num_nodes']}" if several else "trainer.strategy=fsdp"
        raise ConfigError(
            f"batching.max_tokens: auto measures a whole model on one machine and cannot speak for {reason}; give a "
            f"number, such as the one that a run on one machine without it finds"
        )


def _check_root(config: Mapping[str, Any]) -> None:
    if config["seed"] < 0:
        raise ConfigError(f"seed: {config['seed']} is negative; give a number from 0 on")
    if not config["cache"]:
        raise ConfigError("cache: names no folder; the variable CROSSLIGHT_CACHE is perhaps set to nothing")
    known = [field.name for field in dataclasses.fields(RunConfig)]
    for key, value in config.items():
        if key not in known:
            raise ConfigError(f"{key}: there is no such setting{nearest(key, known)}")
        if value == "???":
            raise ConfigError(f"{key}: a value is needed; give {key}=… on the command line")
    for group in ("callbacks", "logger"):
        nodes = config[group] or {}
        chosen = [name for name, node in nodes.items() if isinstance(node, Mapping) and "_target_" in node]
        for name in nodes:
            if name not in chosen:
                kind = group.removesuffix("s")
                close = difflib.get_close_matches(name, chosen, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"choose it with {group}=[…]"
                raise ConfigError(f"{group}.{name}: there is no such {kind}; {hint}")
    if "best" not in (config["callbacks"] or {}):
        raise ConfigError("callbacks.best: missing; the test uses the weights that it keeps; add it to callbacks=[…]")


MONITORED = ("val/bleu", "val/chrf", "val/exact_match", "val/loss")
