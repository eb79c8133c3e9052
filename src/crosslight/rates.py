"""From a config to the learning rate of its run: what `scripts/describe.py scheduler=…` shows.

Needs neither data nor torch, whose import alone takes longer than the rest.
"""

import math
from collections.abc import Mapping
from typing import Any

from crosslight.config.check import HYDRA_KEYS, check_config, fits, locate
from crosslight.config.rules import check_rules
from crosslight.description.schedules import Curve
from crosslight.errors import ConfigError


def describe_schedule(config: Mapping[str, Any], name: str) -> Curve:
    """The rates of a whole run with this config, after a check of what they depend on."""
    node, peak, total = config["scheduler"], config["optimizer"]["lr"], config["trainer"]["max_steps"]
    if not (fits(peak, float) and 0 <= peak < math.inf):
        raise ConfigError(f"optimizer.lr: {peak!r} is no rate to train with; a usual one is 1e-3")
    if not (fits(total, int) and total >= 1):
        raise ConfigError(f"trainer.max_steps: {total!r} is no number of updates from 1 on")
    check_config({"scheduler": node})
    check_rules(config)
    settings = {key: value for key, value in node.items() if key not in HYDRA_KEYS}
    schedule = locate("scheduler", node["_target_"])(**settings)
    places = {node["warmup_steps"]: "end of warm-up"} if "warmup_steps" in node else {}
    if node.get("decay_steps"):
        places[node["total_steps"] - node["decay_steps"]] = "start of decay"
    return Curve(name, lambda update: schedule(update, peak), node.get("warmup_steps", 0), total, places)
