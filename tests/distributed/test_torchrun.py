"""Launches by torchrun and srun, played on this machine: two nodes are two working folders on loopback."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, environment

Train = Callable[..., Path]
TRAIN = str(ROOT / "train.py")
SEVEN_BATCHES = [
    *("expect=null", "cache=prepared", "trainer.threads=1", "trainer.precision=32", "decode.max_len_extra=3"),
    *("data.min_length=5", "data.max_length=5", "data.num_train=700", "batching.max_tokens=600"),  # 7 micro-batches
    *("data.num_validation=7", "data.num_test=2", "batching.eval_max_tokens=18"),  # 3 batches of validation
    *("callbacks=[saver,best]", "logger=null", "model.d_model=32", "model.d_ff=64"),
    *("trainer.max_epochs=3", "trainer.max_steps=100", "trainer.val_check_interval=100"),
]
"""A copy task whose batches are an odd number, for two processes."""


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def torchrun(node: int, port: str) -> list[str]:
    where = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1", "--master-addr=127.0.0.1"]
    return [sys.executable, "-m", "torch.distributed.run", *where, f"--master-port={port}", TRAIN]


def together(
    commands: Sequence[Sequence[str]], folders: Sequence[Path], variables: Sequence[dict[str, str]] = ({}, {})
) -> list[subprocess.CompletedProcess[str]]:
    """All commands at once, each in its folder; how each ended."""
    started = []
    for command, folder, more in zip(commands, folders, variables, strict=True):
        folder.mkdir(exist_ok=True)
        started.append(
            subprocess.Popen(
                command,
                cwd=folder,
                env=environment(OMP_NUM_THREADS="1", **more),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        return [
            subprocess.CompletedProcess(process.args, process.returncode, out, err)
            for process in started
            for out, err in [process.communicate(timeout=120)]
        ]
    finally:
        for process in started:
            process.kill()


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "update=12.ckpt", weights_only=True)["state_dict"]


def record_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "record.json").read_text())


def test_two_nodes_make_one_run_with_the_bits_of_one_process(train: Train, tmp_path: Path) -> None:
    """Cases C03 and D02: each node prepares once, on its own disk; seven batches an epoch make four updates on both."""
    port, folders = free_port(), [tmp_path / "node0", tmp_path / "node1"]
    options = ["trainer=torchrun", "trainer.accelerator=cpu", *SEVEN_BATCHES]
    first, second = together([[*torchrun(node, port), *options] for node in (0, 1)], folders)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert second.stdout == "", "only rank 0 speaks"
    assert sorted(path.name for path in folders[0].iterdir()) == ["outputs", "prepared"]
    assert [path.name for path in folders[1].iterdir()] == ["prepared"]
    caches = [[path.parent.name for path in folder.glob("prepared/data/*/pairs.arrow")] for folder in folders]
    assert len(caches[0]) == 1
    assert caches[0] == caches[1]
    (run,) = (folders[0] / "outputs" / "copy").iterdir()
    assert first.stdout.splitlines()[-1] == str(run.relative_to(folders[0]))
    record = record_of(run)
    assert [record[key] for key in ("status", "processes", "nodes", "updates", "epochs")] == ["finished", 2, 2, 12, 3]
    assert (run / "train.log").read_text().count("model: ") == 1

    alone = train("trainer=cpu", "trainer.virtual_ranks=2", *SEVEN_BATCHES)
    one, two = weights(alone), weights(run)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)
    assert record_of(alone)["scores"] == record["scores"]


@pytest.mark.slow
def test_srun_and_torchrun_on_one_node_make_the_same_run(tmp_path: Path) -> None:
    runs = []
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_NODELIST": "localhost", "SLURM_NTASKS": "2", "SLURM_NNODES": "1"}
    tasks = [{**job, "SLURM_NODEID": "0", "SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in ("0", "1")]
    for tasks_of, commands in (
        (tasks, [[sys.executable, TRAIN, "trainer=slurm"]] * 2),
        (({},), [[sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", TRAIN]]),
    ):
        folder = tmp_path / str(len(tasks_of))
        group = [*SEVEN_BATCHES, "trainer.accelerator=cpu", *(["trainer=torchrun"] if len(commands) == 1 else [])]
        ended = together([[*command, *group] for command in commands], [folder] * len(commands), tasks_of)
        assert [process.returncode for process in ended] == [0] * len(commands), ended[0].stderr
        (run,) = (folder / "outputs" / "copy").iterdir()
        runs.append(run)
    assert [(record_of(run)["processes"], record_of(run)["nodes"]) for run in runs] == [(2, 1)] * 2
    one, two = map(weights, runs)
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.slow
def test_nodes_with_other_text_and_settings_that_are_wrong_end_in_one_sentence(tmp_path: Path) -> None:
    folders = [tmp_path / "node0", tmp_path / "node1"]
    for folder, last in zip(folders, ("eins", "zwei"), strict=True):
        folder.mkdir()
        for side in ("source", "target"):
            lines = [f"{word} {number}" for number in range(40) for word in ("a", "b")]
            (folder / f"train.{side}").write_text("\n".join([*lines, last]) + "\n")
    text = ["data=text_files", "data.train.source=train.source", "data.train.target=train.target", "cache=prepared"]
    options = [*text, "tokenizer.vocab_size=40", "trainer=torchrun", "trainer.accelerator=cpu", "trainer.max_steps=1"]
    for more, said in (
        ([], r"error: rank 1 on \S+: the training data \(sha256\) is \w+, but \w+ on rank 0"),
        (["modle=2"], r"error: modle: there is no such setting; did you mean 'model'\?"),
    ):
        port = free_port()
        ended = together([[*torchrun(node, port), *options, *more] for node in (0, 1)], folders)
        assert all(process.returncode for process in ended)
        errors = [line for process in ended for line in process.stderr.splitlines() if line.startswith("error: ")]
        assert len(errors) == 1
        assert re.match(said, errors[0])
        assert not list(tmp_path.glob("node*/outputs/*/*/checkpoints/*"))
