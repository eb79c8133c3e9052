"""The real commands in child processes, as a user would type them, in a folder of their own."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import LONG, ROOT, Command, environment
from forked import ForkServer


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, so that `outputs/` is below it."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Starts processes that need not import anything."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def command(folder: Path, fork_server: ForkServer) -> Command:
    """`command("train.py", *arguments)`: the finished process. A status other than `status` fails the test.

    With `real`, or environment variables that imports may read, a new Python does it; else a forked one, much sooner.
    """

    def run(
        script: str,
        *arguments: str,
        stdin: bytes = b"",
        status: int = 0,
        cwd: Path = folder,
        real: bool = False,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        line, env = [str(ROOT / script), *arguments], environment(**variables)
        if real or not fork_server.suits(env):
            done = subprocess.run(
                [sys.executable, *line], input=stdin, capture_output=True, cwd=cwd, env=env, timeout=300
            )
        else:
            done = fork_server.run(line, stdin=stdin, cwd=cwd, environment=env, timeout=300)
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
    return train(*LONG, real=True)


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
