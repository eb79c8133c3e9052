"""The real commands in child processes, as a user would type them, in a folder of their own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import LONG, ROOT, Command, environment


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, so that `outputs/` is below it."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def command(folder: Path) -> Command:
    """`command("train.py", *arguments)`: the finished process. A status other than `status` fails the test."""

    def run(
        script: str, *arguments: str, stdin: bytes = b"", status: int = 0, cwd: Path = folder, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, str(ROOT / script), *arguments],
            input=stdin,
            capture_output=True,
            cwd=cwd,
            env=environment(**variables),
            timeout=300,
        )
        text = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
        assert text.returncode == status, f"status {text.returncode}\n{text.stdout}\n{text.stderr}"
        return text

    return run


@pytest.fixture(scope="session")
def train(command: Command, folder: Path) -> Callable[..., Path]:
    """`train(*overrides)`: the folder of a finished run, which is the last line that the command prints."""

    def run(*overrides: str, **options: object) -> Path:
        done = command("train.py", *overrides, **options)
        path = folder / done.stdout.rstrip("\n").splitlines()[-1]
        assert path.is_dir(), done.stdout
        return path

    return run


@pytest.fixture(scope="session")
def copy_run(train: Callable[..., Path]) -> Path:
    """A short run of the copy task: 24 updates, validations after 10, 20 and 24."""
    return train(*LONG)


@pytest.fixture(scope="session")
def copier(train: Callable[..., Path]) -> Path:
    """A run that has learnt to copy up to six of twelve symbols without a mistake."""
    return train(
        "expect.exact_match=100",
        "data.num_symbols=12",
        "data.max_length=6",
        "data.num_train=20000",
        "data.num_validation=20",
        "data.num_test=200",
        "batching.max_tokens=800",
        "model.d_model=64",
        "model.d_ff=128",
        "model.num_encoder_layers=1",
        "model.num_decoder_layers=1",
        "optimizer.lr=5e-3",
        "scheduler.warmup_steps=50",
        "trainer.max_steps=400",
        "trainer.val_check_interval=200",
    )
