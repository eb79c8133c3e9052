"""Whole runs with each objective: resumed they end with the same bits; teachers are found, checked and kept outside."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from texts import numbers
from torch.nn import functional

from crosslight import build
from crosslight.app import train
from crosslight.batches import Batch
from crosslight.config.compose import compose
from crosslight.errors import ConfigError, RunError
from crosslight.inference import load_run
from crosslight.objectives.distillation import Distillation
from crosslight.runs.folder import RunFolder
from crosslight.starting import resumed

SMALL = [
    *("trainer=cpu", "trainer.threads=1", "expect=null", "logger=null", "callbacks=[saver,best]"),
    *("data.num_train=200", "data.num_validation=3", "data.num_test=2", "data.num_symbols=9", "data.max_length=6"),
    *("tokenizer.num_symbols=9", "batching.max_tokens=400", "decode.max_len_extra=1", "model.dropout=0.1"),
    *("model.d_model=16", "model.d_ff=24", "model.num_heads=2"),
    *("trainer.max_steps=8", "scheduler.total_steps=8", "trainer.val_check_interval=8"),
]
"""A copy task of a second: about four updates an epoch."""


def ran(folder: Path, *overrides: str) -> Path:
    """The folder after a run there, in this process."""
    train(build.plain(compose([*SMALL, f"cache={folder}/cache", *overrides])), RunFolder(folder))
    return folder


def weights(run: Path, update: int = 8) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / f"update={update}.ckpt", weights_only=True)["state_dict"]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with other sizes and positions, but the same symbols."""
    folder = tmp_path_factory.mktemp("runs") / "teacher"
    overrides = ["model.d_ff=40", "model/positions=learned", "model.positions.max_positions=65"]
    return ran(folder, *overrides, "trainer.max_steps=2", "trainer.val_check_interval=2")


CHOICES = {
    "layer_drop": ["model.layer_drop=0.3", "trainer.virtual_ranks=2"],
    "r_drop": ["task/objective=r_drop", "model.layer_drop=0.3"],
    "distillation": ["task/objective=distillation", "task.objective.teacher=teacher"],
}


@pytest.mark.parametrize("choice", list(CHOICES))
def test_a_run_resumed_from_another_working_folder_ends_with_the_same_bits(
    choice: str, teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(teacher.parent)
    whole = ran(
        tmp_path / "whole", *CHOICES[choice], "callbacks.saver.every_n_updates=3", "callbacks.saver.keep_last=9"
    )
    killed = RunFolder(tmp_path / "killed")
    shutil.copytree(whole, killed.path)
    for checkpoint in killed.updates_saved()[1:]:
        checkpoint.unlink()
    assert [path.name for path in killed.updates_saved()] == ["update=3.ckpt"]
    monkeypatch.chdir(tmp_path)
    train(build.plain(resumed(killed, [])), killed)
    one, other = weights(whole), weights(killed.path)
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert all(key.startswith("model.") for key in one)
    assert not torch.equal(one["model.output.weight"], weights(whole, 3)["model.output.weight"])


def task_of(*overrides: str) -> Any:
    """The task of a run, before there is data."""
    config = build.plain(compose([*SMALL, *overrides]))
    tokenizers = numbers(config["tokenizer"]["num_symbols"])
    torch.manual_seed(1)
    return build.build_task(
        config,
        model=build.build_model(config, tokenizers),
        search=build.build_search(config),
        tokenizers=tokenizers,
        recipe=build.build_trainer_recipe(config),
        test_langs={},
        load_run=load_run,
    )


def taught_by(path: Path) -> list[str]:
    return ["task/objective=distillation", f"task.objective.teacher={path}"]


def test_the_validation_loss_is_plain_whatever_training_minimises(teacher: Path) -> None:
    rows = torch.randint(3, 12, (2, 5), generator=torch.Generator().manual_seed(1))
    batch = Batch(rows, rows, rows, (0, 1), references=("1", "2"))
    training = set()
    for objective in ([], ["task/objective=r_drop"], taught_by(teacher)):
        task = task_of(*objective, "task.objective.label_smoothing=0.3", "model.dropout=0.5")
        training.add(task.train().loss_of(batch).total.item())
        task.eval().validation_step(batch, 0)
        plain = functional.cross_entropy(task.model(rows, rows).flatten(0, 1), rows.flatten())
        assert task._validation.result().scores["loss"].value == pytest.approx(plain.item(), rel=1e-5)
    assert len(training) == 3


def test_a_teacher_stays_outside_the_task(teacher: Path) -> None:
    task = task_of(*taught_by(teacher))
    objective: Distillation = task.objective
    own = {id(p) for p in task.model.parameters()}
    assert {id(p) for p in task.parameters()} == own
    assert {id(p) for group in task.configure_optimizers().param_groups for p in group["params"]} == own
    assert all(key.startswith("model.") for key in task.state_dict())
    task.train()
    assert not any(part.training for part in objective.teacher.modules())
    assert not any(p.requires_grad for p in objective.teacher.parameters())
    expected, state = weights_of_best(teacher), objective.teacher.state_dict()
    assert all(torch.equal(state[key.removeprefix("model.")], value) for key, value in expected.items())


def weights_of_best(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]


def test_a_teacher_computes_in_the_students_precision(teacher: Path) -> None:
    task, seen = task_of(*taught_by(teacher)), []
    task.objective.teacher.register_forward_hook(lambda module, inputs, logits: seen.append(logits.dtype))
    rows = torch.full((1, 4), 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = task.loss_of(Batch(rows, rows, rows, (0,)))
    assert (seen, loss.total.dtype) == ([torch.bfloat16], torch.float32)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("tokenizer.num_symbols=10", "has other tokenizers than this run, so its predictions mean other pieces"),
        ("cleaning.max_len=99", "knows 65 positions, but cleaning.max_len=99 lets sequences have 100; take a smaller"),
    ],
)
def test_a_teacher_that_does_not_fit_the_student_is_refused(override: str, message: str, teacher: Path) -> None:
    with pytest.raises(RunError) as error:
        task_of(*taught_by(teacher), override)
    assert str(error.value).startswith(f"task.objective.teacher={teacher}: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("folder", "message"),
    [("nowhere", "there is no such folder"), ("begun", "this run has no checkpoints/best.ckpt yet")],
)
def test_a_teacher_that_is_not_there_is_refused_before_any_data(
    folder: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosslight.app.prepare", lambda *_: pytest.fail("data was touched"))
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.yaml").touch()
    with pytest.raises(RunError) as error:
        ran(tmp_path / "student", *taught_by(tmp_path / folder))
    assert str(error.value) == f"task.objective.teacher={tmp_path / folder}: {message}"
    assert not (tmp_path / "student").exists()


def test_a_teacher_of_a_foreign_class_is_refused(teacher: Path, tmp_path: Path) -> None:
    content = yaml.safe_load((teacher / "config.yaml").read_text())
    content["model"]["_target_"] = "os.system"
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=r"'os\.system' is refused; a run folder may name only classes of crosslight"):
        task_of(*taught_by(tmp_path))


@pytest.mark.parametrize("override", ["task.no_decay=[]", "task/objective=r_drop"])
def test_what_an_update_means_cannot_change_in_a_resumed_run(override: str, teacher: Path) -> None:
    with pytest.raises(ConfigError, match=r"^task[./]\w+: "):
        resumed(RunFolder(teacher), [override])
