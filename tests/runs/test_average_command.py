"""`scripts/average.py` on the run folder of a user: what it writes can be used, and what could run code is refused."""

import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, Command

from crosslight.inference import load_run
from crosslight.runs.checkpoints import load_checkpoint

Script = Callable[..., tuple[int, str]]


@pytest.fixture
def run(copy_run: Path, tmp_path: Path) -> Path:
    """A copy of a run with saves after 8, 12, 16, 20, 24 and the best after 24, 20, 10."""
    return Path(shutil.copytree(copy_run, tmp_path / "run"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """`script(name, *arguments)`: exit status and what is said, without a process."""

    def call(name: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        status = 0
        try:
            runpy.run_path(str(ROOT / "scripts" / f"{name}.py"), run_name="__main__")
        except SystemExit as error:
            status = int(error.code or 0)
        return status, "".join(capsys.readouterr())

    return call


def mean_of(run: Path, updates: list[int], name: str = "update={}.ckpt") -> dict[str, torch.Tensor]:
    """By another road: stacked in float64."""
    files = [load_checkpoint(run / "checkpoints" / name.format(update))["state_dict"] for update in updates]
    return {key: torch.stack([f[key].double() for f in files]).mean(dim=0) for key in files[0]}


@pytest.mark.parametrize(
    ("wish", "updates"), [("last=3", [16, 20, 24]), ("best=2", [20, 24]), ("updates=[24,8]", [8, 24])]
)
def test_the_average_can_be_used_like_any_checkpoint(run: Path, script: Script, wish: str, updates: list[int]) -> None:
    status, said = script("average", f"run={run}", wish)
    assert (status, said) == (
        0,
        f"{run}/checkpoints/average.ckpt: the mean of updates {', '.join(map(str, updates))}\n",
    )
    model = load_run(str(run), checkpoint="average.ckpt").model
    expected = mean_of(run, updates)
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor.double(), expected[f"model.{key}"], rtol=0, atol=1e-6)
    best = run / "checkpoints" / "best.ckpt"
    assert (run / "checkpoints" / "average.ckpt").stat().st_size == pytest.approx(best.stat().st_size, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["last=6"], "there are update=8.ckpt, update=12.ckpt, update=16.ckpt, update=20.ckpt, update=24.ckpt\n"),
        (["last=1"], "last: 1 is no average; give at least 2"),
        (["last=2", "best=2"], "last, best: give one of last=N, best=N, updates=[…]"),
        ([], "last, best, updates: give one of last=N, best=N, updates=[…]"),
        (["updates=[8,x]"], "updates: '[8,x]' is not a list of two or more updates"),
        (["updates=8"], "updates: '8' is not a list of two or more updates"),
        (["last=2", "output=best.ckpt"], "output: 'best.ckpt' is no name for it in checkpoints/; give"),
        (["last=2", "output=update=9.ckpt"], "output: 'update=9.ckpt' is no name for it"),
        (["last=2", "output=../x.ckpt"], "output: '../x.ckpt' is no name for it"),
        (["last=2", "output=best"], "output: 'best' is no name for it"),
        (["last=2", "output="], "output: '' is no name for it"),
        (["lst=2"], "did you mean 'last'"),
    ],
)
def test_a_wish_that_cannot_be_met_is_one_sentence(run: Path, script: Script, arguments: list[str], said: str) -> None:
    before = sorted(run.rglob("*"))
    status, text = script("average", f"run={run}", *arguments)
    assert status == 2
    assert said in text
    assert text.count("\n") == 1
    assert sorted(run.rglob("*")) == before


class Evil:
    """Its pickle creates a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def test_a_checkpoint_that_would_run_code_is_refused_by_every_command(
    run: Path, script: Script, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case G10."""
    marker, newest = tmp_path / "marker", run / "checkpoints" / "update=24.ckpt"
    torch.save({**load_checkpoint(newest), "extra": Evil(marker)}, newest)
    for name, *arguments in (
        ["average", "last=2"],
        ["translate", f"checkpoint={newest.name}"],
        ["evaluate", f"checkpoint={newest.name}"],
    ):
        status, text = script(name, f"run={run}", *arguments)
        assert (status, text.startswith(f"error: {newest}: refused")) == (2, True), text
    for other in set(newest.parent.glob("update=*.ckpt")) - {newest}:  # a resume would go on from one of these
        other.unlink()
    done = command("train.py", f"resume={run}", status=2)
    assert f"{newest}: refused" in done.stdout
    assert "none of its 1 checkpoints can be used" in done.stderr
    assert not marker.exists()
    torch.load(newest, weights_only=False)
    assert marker.exists(), "the trap works"
