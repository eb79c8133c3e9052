"""What the commands import before they do anything: modules that take long are left to those who need them."""

import subprocess
from pathlib import Path

from commands import Command

HEAVY = {
    "datasets",
    "lightning",
    "matplotlib",
    "pandas",
    "pytorch_lightning",
    "sacrebleu",
    "tensorboard",
    "torchmetrics",
}


def imported(done: subprocess.CompletedProcess[str]) -> set[str]:
    """The modules that a command run with PYTHONPROFILEIMPORTTIME has imported."""
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def test_help_is_printed_without_torch_and_arrays(command: Command) -> None:
    done = command("train.py", "--help", PYTHONPROFILEIMPORTTIME="1")
    assert "multi30k_en_de" in done.stdout
    names = imported(done)
    assert "hydra" in names
    assert not names & (HEAVY | {"numpy", "pyarrow", "torch"})


def test_translating_imports_nothing_that_it_does_not_use(command: Command, copier: Path) -> None:
    """`torch._dynamo` is what torch's meta device and its optimizers import, with sympy."""
    done = command("scripts/translate.py", f"run={copier}", stdin=b"1 2 3\n", PYTHONPROFILEIMPORTTIME="1")
    assert done.stdout == "1 2 3\n"
    names = imported(done)
    assert "torch" in names
    assert not names & (HEAVY | {"ctranslate2", "sympy", "torch._dynamo", "transformers"})
