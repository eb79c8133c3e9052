"""Two real gloo processes, through the command, against one process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

Train = Callable[..., Path]
OPTIONS = [
    "expect=null",
    "data.num_train=2000",
    "data.num_validation=7",
    "data.num_test=7",
    "decode.max_len_extra=3",
    "trainer.max_steps=20",
    "trainer.val_check_interval=10",
    "callbacks=[saver,best,progress,ema]",
    "callbacks.saver.every_n_updates=5",
    "callbacks.ema.decay=0.8",
]
LAYOUTS = {
    "two processes": ["trainer=ddp_cpu"],
    "two virtual ranks": ["trainer=cpu", "trainer.virtual_ranks=2"],
    "accumulation": ["trainer=cpu", "trainer.accumulate=2", "trainer.threads=1"],
    "the reducer of DDP": ["trainer=ddp_cpu", "trainer.reduction=fast"],
    "sharded weights": ["trainer=fsdp", "trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32"],
}


@pytest.fixture(scope="module")
def runs(train: Train) -> dict[str, Path]:
    """The same data, the same global batches, in every layout."""
    return {name: train(*OPTIONS, *layout) for name, layout in LAYOUTS.items()}


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "update=20.ckpt", weights_only=True)["state_dict"]


def record_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "record.json").read_text())


def test_two_processes_take_the_same_steps_as_one_to_the_last_bit(runs: dict[str, Path]) -> None:
    one, two = weights(runs["two virtual ranks"]), weights(runs["two processes"])
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert record_of(runs["two processes"])["processes"] == 2
    assert record_of(runs["two virtual ranks"])["processes"] == 1


@pytest.mark.parametrize(
    ("layout", "largest"),
    [
        ("accumulation", 1e-6),
        ("the reducer of DDP", 1e-6),
        ("sharded weights", 1e-4),  # sums its norm in another order; Adam magnifies that where gradients are near zero
    ],
)
def test_every_layout_takes_the_same_steps(runs: dict[str, Path], layout: str, largest: float) -> None:
    one, other = weights(runs["two virtual ranks"]), weights(runs[layout])
    assert one.keys() == other.keys()
    differences = torch.cat([(one[key] - other[key]).abs().flatten() for key in one])
    assert float(differences.max()) < largest
    assert float(differences.mean()) < 1e-7


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_every_sentence_is_scored_once_in_order_in_every_layout(runs: dict[str, Path], layout: str) -> None:
    expected, found = record_of(runs["two virtual ranks"])["scores"], record_of(runs[layout])["scores"]
    for split, name in (("test", "copy"), ("validation", "validation")):
        assert found[split][name]["exact_match"]["signature"] == "exact|lines:7"
        for metric, score in expected[split][name].items():
            assert found[split][name][metric]["value"] == pytest.approx(score["value"], abs=1e-5)
            assert found[split][name][metric]["signature"] == score["signature"]
    one, other = (runs[key] / "hypotheses" / "copy.txt" for key in ("two virtual ranks", layout))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_the_same_averages_compete_in_every_layout(runs: dict[str, Path], layout: str) -> None:
    expected, found = (record_of(runs[name])["averaging"] for name in ("two virtual ranks", layout))
    assert [row["candidate"] for row in expected["candidates"]] == ["best single", "last 4", "best 2", "ema"]
    assert found["winner"] == expected["winner"]
    for one, other in zip(expected["candidates"], found["candidates"], strict=True):
        assert other["updates"] == one["updates"]
        assert other["score"] == pytest.approx(one["score"], abs=1e-5)


def test_a_run_of_two_processes_goes_on_with_one(train: Train, runs: dict[str, Path]) -> None:
    stopped = train(*OPTIONS, "trainer=ddp_cpu", "trainer.max_steps=13", "scheduler.total_steps=20")
    resumed = train(f"resume={stopped}", "trainer.max_steps=20", "trainer.devices=1")
    assert yaml.safe_load((resumed / "config.yaml").read_text())["trainer"]["virtual_ranks"] == 2
    assert record_of(resumed)["processes"] == 1
    expected, found = weights(runs["two processes"]), weights(resumed)
    assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_a_sweep_over_two_processes_makes_one_folder_a_job(command: Callable[..., Any], folder: Path) -> None:
    options = ["trainer=ddp_cpu", "trainer.max_steps=4", "trainer.val_check_interval=4", "name=ddp_sweep"]
    before = {path.name for path in folder.iterdir()}
    command("train.py", "-m", *OPTIONS, *options, "data.num_test=1", "data.num_validation=1", "seed=1,2")
    (sweep,) = (folder / "outputs" / "ddp_sweep").iterdir()
    jobs = sorted(path for path in sweep.iterdir() if path.is_dir())
    assert [job.name for job in jobs] == ["0", "1"]
    for job, seed in zip(jobs, (1, 2), strict=True):
        record = record_of(job)
        assert record["status"] == "finished"
        assert record["processes"] == 2
        assert yaml.safe_load((job / "config.yaml").read_text())["seed"] == seed
        assert sorted(path.name for path in (job / "checkpoints").iterdir()) == ["best", "best.ckpt", "update=4.ckpt"]
        assert len(list((job / "tensorboard").glob("events*"))) >= 1
    assert {path.name for path in folder.iterdir()} <= before | {"outputs"}
