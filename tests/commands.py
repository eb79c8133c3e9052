"""What the integration tests share: a copy task of seconds and how to start a command."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from crosslight.runs.ranks import SRUN, TORCHRUN

ROOT = Path(__file__).parents[1]
SMALL = [
    "expect=null",
    "data.num_train=600",
    "data.num_validation=21",
    "data.num_test=23",
    "decode.max_len_extra=3",
    "trainer.log_every_n_steps=1",
    "callbacks.progress.seconds=0",
]
"""A copy task of seconds: about six updates an epoch."""

LONG = [
    *SMALL,
    "trainer.max_steps=24",
    "trainer.val_check_interval=10",
    "model.dropout=0.1",
    "callbacks=[saver,best,progress,samples,attention_maps,ema]",
    "callbacks.saver.every_n_updates=4",
]
"""The same, for 24 updates, with validations after 10, 20 and 24 and saves after every fourth."""

Command = Callable[..., subprocess.CompletedProcess[str]]


def environment(**variables: str) -> dict[str, str]:
    """This process's environment without the rank variables of another run."""
    return {key: value for key, value in os.environ.items() if key not in (*TORCHRUN, *SRUN)} | variables
