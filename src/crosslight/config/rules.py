"""Rules that span groups, checked before any data is touched; a class's own rules stay in its constructor."""

from collections.abc import Mapping
from typing import Any

from crosslight.errors import ConfigError


def check_rules(config: Mapping[str, Any]) -> None:
    """Raise a ConfigError for groups that do not fit each other."""
    model, data, tokenizer, callbacks = (config[g] for g in ("model", "data", "tokenizer", "callbacks"))
    if model.get("tie") == "all" and tokenizer.get("joint") is False:
        raise ConfigError(
            "model.tie: 'all' shares one table for both sides, but tokenizer.joint=false makes two vocabularies; "
            "use tokenizer.joint=true or model.tie=target_output"
        )
    if (heads := model.get("num_heads")) and model["d_model"] % heads:
        divisors = sorted(range(1, model["d_model"] + 1), key=lambda n: (model["d_model"] % n != 0, abs(n - heads)))
        raise ConfigError(
            f"model.num_heads: {heads} does not divide model.d_model={model['d_model']}; "
            f"divisors near it are {' and '.join(map(str, sorted(divisors[:2])))}"
        )
    limit = model.get("positions", {}).get("max_positions")
    if limit is not None and limit < data["max_len"] + 1:
        raise ConfigError(
            f"model.positions.max_positions: {limit} does not cover data.max_len={data['max_len']} and EOS; "
            f"take at least {data['max_len'] + 1}, or a smaller data.max_len"
        )
    if "num_symbols" in data and "num_symbols" in tokenizer and tokenizer["num_symbols"] < data["num_symbols"]:
        raise ConfigError(
            f"tokenizer.num_symbols: {tokenizer['num_symbols']} is fewer than data.num_symbols={data['num_symbols']}"
        )
    for metric in config.get("expect") or {}:
        if metric not in ("bleu", "chrf", "exact_match"):
            raise ConfigError(f"expect.{metric}: not a test score; there are bleu, chrf, exact_match")
    for name, callback in (callbacks or {}).items():
        monitor = callback.get("monitor")
        if monitor is not None and monitor not in MONITORED:
            raise ConfigError(f"callbacks.{name}.monitor: {monitor!r} is not one of {', '.join(MONITORED)}")


MONITORED = ("val/bleu", "val/chrf", "val/exact_match", "val/loss")
