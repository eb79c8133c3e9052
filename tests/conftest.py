"""Executes the shape annotations in all tests, and finds the shared data folder."""

import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as make test has it: no thread of OpenMP in what is forked

hook = install_import_hook("crosslight", "beartype.beartype")

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with real data; where CROSSLIGHT_SHARED=required its absence is a failure."""
    if SHARED.is_dir():
        return SHARED
    if os.environ.get("CROSSLIGHT_SHARED") == "required":
        pytest.fail(f"CROSSLIGHT_SHARED=required, but {SHARED} is missing")
    pytest.skip("no shared data folder")


pytest_plugins = ["commands_fixtures"]
