"""Train, translate and evaluate through the commands, on a run that takes seconds."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from crosslight.data.lines import read_lines

Command = Callable[..., subprocess.CompletedProcess[str]]
Train = Callable[..., Path]


def record_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "record.json").read_text(encoding="utf-8"))


def test_a_run_folder_holds_all_that_a_user_needs_later(copy_run: Path) -> None:
    record = record_of(copy_run)
    assert record["status"] == "finished"
    assert record["updates"] == 24
    score = record["scores"]["test"]["copy"]
    assert set(score) == {"bleu", "chrf", "exact_match", "loss"}
    assert "tok:13a" in score["bleu"]["signature"]
    assert {"decode", "checkpoint", "versions", "git_commit", "wall_seconds", "target_tokens_per_second"} <= set(record)
    assert len(record["data"]["test"]["copy"]["sha256"]) == len(record["checkpoint"]["sha256"]) == 64
    assert yaml.safe_load((copy_run / "config.yaml").read_text())["trainer"]["max_steps"] == 24
    assert len(read_lines(copy_run / "hypotheses" / "copy.txt")) == 23
    assert (copy_run / "tokenizer" / "tokenizer.json").is_file()
    assert "update 24/24" in (copy_run / "train.log").read_text()


def test_checkpoints_hold_plain_data_only(copy_run: Path) -> None:
    for path in (copy_run / "checkpoints").rglob("*.ckpt"):
        content = torch.load(path, weights_only=True)
        assert content["crosslight"]["config"]["model"]["d_model"] == 128


def test_tensorboard_shows_curves_samples_attention_and_hyperparameters(copy_run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tags: dict[str, set[str]] = {"scalars": set(), "images": set(), "tensors": set()}
    for file in (copy_run / "tensorboard").glob("events*"):
        events = EventAccumulator(str(file), size_guidance={"scalars": 0})
        events.Reload()
        for kind in tags:
            tags[kind] |= set(events.Tags()[kind])
        if "train/loss" in events.Tags()["scalars"]:
            assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 25))
            assert [event.step for event in events.Scalars("val/bleu")] == [10, 20, 24]
        if "final/test/copy/bleu" in events.Tags()["scalars"]:  # a resumed run adds the next end, further to the right
            assert [event.step for event in events.Scalars("final/test/copy/bleu")] == [24]
    training = ("loss", "perplexity", "learning_rate", "gradient_norm", "target_tokens_per_second")
    assert {f"train/{name}" for name in training} <= tags["scalars"]
    assert {"val/bleu", "val/loss", "final/test/copy/bleu"} <= tags["scalars"]
    assert "attention/0" in tags["images"]
    assert "val/samples/text_summary" in tags["tensors"]


def test_translation_gives_one_line_for_each_line_in_order(command: Command, copier: Path) -> None:
    lines = ["1 2", "", "3", " ", "\u00a0", "\t", "4 5 6 7 8 9", "", "10 11 0", "9", "8 7 6 5"]
    for size in (1, 4, 2000):
        done = command("scripts/translate.py", f"run={copier}", f"lines={size}", stdin="\n".join(lines).encode())
        assert done.stdout == "".join(f"{line.strip()}\n" for line in lines)
        assert done.stderr == ""


@pytest.mark.parametrize(("stdin", "expected"), [(b"", ""), (b"\n\n\n", "\n\n\n"), (b"\r\n \n", "\n\n")])
def test_nothing_to_translate_gives_nothing(command: Command, copy_run: Path, stdin: bytes, expected: str) -> None:
    assert command("scripts/translate.py", f"run={copy_run}", stdin=stdin).stdout == expected


def test_a_line_with_a_foreign_symbol_is_named(command: Command, copy_run: Path) -> None:
    done = command("scripts/translate.py", f"run={copy_run}", stdin=b"1 2\n3 cow\n", status=2, real=True)
    assert "'cow' is not a symbol" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_checkpoint_scores_what_training_printed_also_when_the_run_has_moved(
    command: Command, copy_run: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "elsewhere" / "run"
    shutil.copytree(copy_run, moved)
    for split in ("test", "validation"):
        printed = command("scripts/evaluate.py", f"run={moved}", f"split={split}", cwd=tmp_path).stdout
        scores = next(iter(record_of(copy_run)["scores"][split].values()))
        for metric, score in scores.items():
            shown = f"{score['value']:.4f}" if metric == "loss" else f"{score['value']:.2f}"
            assert re.search(rf"\b{metric}\s+{re.escape(shown)}\s+{re.escape(score['signature'])}", printed), printed


def test_evaluate_writes_the_hypotheses_of_training_again(command: Command, copy_run: Path, tmp_path: Path) -> None:
    command("scripts/evaluate.py", f"run={copy_run}", f"output={tmp_path / 'again.txt'}", real=True)
    assert (tmp_path / "again.txt").read_bytes() == (copy_run / "hypotheses" / "copy.txt").read_bytes()


def test_evaluate_scores_a_pair_of_files(command: Command, copy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("1 2 3\n4 5\n")
    (tmp_path / "ref.txt").write_text("1 2 3\n4 5\n6\n")
    files = [f"source={tmp_path / 'in.txt'}", f"reference={tmp_path / 'ref.txt'}"]
    done = command("scripts/evaluate.py", f"run={copy_run}", *files, status=2)
    assert "2 source lines but 3 target lines" in done.stderr
    (tmp_path / "ref.txt").write_text("1 2 3\n4 5\n")
    assert "exact|lines:2" in command("scripts/evaluate.py", f"run={copy_run}", *files).stdout


@pytest.mark.parametrize("script", ["scripts/translate.py", "scripts/evaluate.py"])
def test_scripts_explain_wrong_arguments(command: Command, script: str, tmp_path: Path) -> None:
    assert "run: missing" in command(script, status=2).stderr
    assert "did you mean 'run'" in command(script, "rum=x", status=2).stderr
    assert "there is no such folder" in command(script, "run=nowhere", status=2).stderr
    assert "no config.yaml" in command(script, f"run={tmp_path}", status=2).stderr
    assert "run=outputs/" in command(script, "--help").stdout


def test_a_missed_mark_ends_with_status_1_and_one_sentence(command: Command) -> None:
    short = [*(x for x in ("data.num_train=200", "data.num_validation=5", "data.num_test=7", "decode.max_len_extra=3"))]
    done = command("train.py", *short, "trainer.max_steps=2", status=1)
    assert "exact_match on copy: 0.0 %, expected 100.0 %" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("outputs/copy/")
    assert done.stderr.startswith("error: exact_match on copy is 0.0 %")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["model.nheads=3"], ["model.nheads", "did you mean 'num_heads'?"]),
        (["sed=3"], ["sed", "did you mean 'seed'?"]),
        (["model=tinny"], ["model/tinny"]),
        (["model.num_heads=7"], ["model.num_heads: 7 does not divide model.d_model=128", "4 and 8"]),
        (["data=text_files"], ["data.train.source"]),
        (["data=text_files", "data.train.source=no.en", "data.train.target=no.de"], ["no.en: cannot be read"]),
        (["resume=nowhere"], ["there is no such folder"]),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(
    command: Command, arguments: list[str], said: list[str], folder: Path
) -> None:
    done = command("train.py", *arguments, status=2)
    assert all(text in done.stderr for text in said), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert not (folder / "nowhere").exists()


def test_a_sweep_makes_one_clean_folder_a_job_and_goes_on_after_a_failure(command: Command, folder: Path) -> None:
    small = ["expect=null", "data.num_train=100", "data.num_validation=5", "data.num_test=5", "decode.max_len_extra=3"]
    done = command(
        "train.py", "-m", *small, "trainer.max_steps=2", "name=sweep", "seed=1,2", "optimizer.lr=-1,1e-3", status=1
    )
    assert "2 jobs of the sweep failed" in done.stderr
    jobs = sorted(path for path in next((folder / "outputs" / "sweep").iterdir()).iterdir() if path.is_dir())
    assert [job.name for job in jobs] == ["0", "1", "2", "3"]
    assert [record_of(job)["status"] for job in jobs[1::2]] == ["finished"] * 2
    assert not any((job / "record.json").exists() for job in jobs[::2])  # refused before anything began
    assert "learning rate" in (jobs[0] / "train.log").read_text()
    assert yaml.safe_load((jobs[3] / "config.yaml").read_text())["seed"] == 2


def test_own_text_files_train_and_translate(command: Command, train: Train, tmp_path: Path) -> None:
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    source = [f"{a} {b} cats" for a in words for b in words]
    for name, lines in (("a.en", source), ("a.de", [line.upper() for line in source])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    pair = [f"data.train.source={tmp_path}/a.en", f"data.train.target={tmp_path}/a.de"]
    run = train(
        "data=text_files", *pair, "tokenizer.vocab_size=60", f"tokenizer.cache={tmp_path}", "trainer.max_steps=2"
    )
    record = record_of(run)
    assert record["data"]["train"]["pairs"] == 45
    assert record["data"]["validation"]["lines"] == 4
    assert "test" not in record["scores"]
    assert command("scripts/translate.py", f"run={run}", stdin=b"one two cats\n").stdout.count("\n") == 1


def test_a_picture_of_the_attention_comes_with_its_translation(command: Command, copier: Path, tmp_path: Path) -> None:
    picture = tmp_path / "map.png"
    done = command("scripts/attention.py", f"run={copier}", "text=3 1 4", f"output={picture}", real=True)
    assert done.stdout == "3 1 4\n"
    assert picture.read_bytes().startswith(b"\x89PNG")
    failed = command("scripts/attention.py", f"run={copier}", "text=3", f"output={picture}/map.png", status=2)
    assert re.fullmatch(r"error: output: .*/map.png/map.png cannot be written \(.*\)\n", failed.stderr)
