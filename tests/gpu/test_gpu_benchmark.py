"""The benchmark of GPUs runs and prints numbers: in small on a CPU, and on a GPU where there is one."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


def numbers(output: Path, *arguments: str) -> list[float]:
    """Run it; all numbers that it has measured."""
    environment = {**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, str(PROGRAM), *arguments, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = []
    for kind, unit in (("train", "tokens/s"), ("decode", "sentences a second")):
        assert unit in done.stdout
        results = json.loads(output.with_name(f"{output.name}_{kind}.json").read_text())["results"]
        found += [value for side in results.values() for one in side for value in one.values()]
    return [value for value in found if isinstance(value, float | int)]


@pytest.mark.slow
def test_a_short_run_on_a_cpu_measures_every_number(tmp_path: Path) -> None:
    found = numbers(tmp_path / "gpu", "--device", "cpu", "--tiny", "--only", "tiny bf16", "tiny greedy")
    assert len(found) >= 10
    assert all(math.isfinite(value) for value in found)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_short_run_on_a_gpu_measures_every_number(tmp_path: Path) -> None:
    found = numbers(tmp_path / "gpu", "--tiny")
    assert all(math.isfinite(value) for value in found)
