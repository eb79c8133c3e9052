"""A disk that takes no more is one sentence and status 2, whichever file it strikes."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, SMALL, environment

from crosslight.runs.folder import disk_trouble


@pytest.mark.parametrize("size", [1500, 20000], ids=["config.yaml", "prepared data"])
def test_no_room_for_a_file_is_one_sentence(tmp_path: Path, size: int) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    command = [sys.executable, "-B", str(ROOT / "train.py"), *SMALL, "trainer=cpu", "trainer.max_steps=2", "logger=[]"]
    told = environment(CROSSLIGHT_CACHE=str(tmp_path / "cache"))
    end = subprocess.run(command, cwd=tmp_path, env=told, capture_output=True, text=True, preexec_fn=limit, timeout=120)
    assert end.returncode == 2, end.stderr
    assert end.stderr.splitlines()[-1].startswith("error: ")
    assert "cannot be" in end.stderr.splitlines()[-1]


def test_the_cause_of_an_error_counts_and_other_errors_stay_what_they_are() -> None:
    full = OSError(28, "No space left on device", "a/train.log")
    outer = ValueError("Unable to configure handler")
    outer.__cause__ = full
    assert str(disk_trouble(outer)).startswith("a/train.log: cannot be written (No space left on device)")
    assert disk_trouble(FileNotFoundError(2, "No such file", "x")) is None
