"""Who has started this process as which of how many, and what a trainer makes of it."""

import re

import pytest
import torch

from crosslight.build import build_trainer_recipe, plain
from crosslight.config.compose import compose
from crosslight.errors import ConfigError
from crosslight.runs.ranks import SRUN, TORCHRUN, Launch, launch
from crosslight.runs.trainer import TrainerRecipe

TORCH = dict(zip(TORCHRUN, ("5", "6", "1", "2", "host", "29500"), strict=True))
SLURM = dict(zip(SRUN, ("5", "6", "3", "1", "2"), strict=True))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*TORCHRUN, *SRUN, "SLURM_NTASKS_PER_NODE", "GROUP_RANK"):
        monkeypatch.delenv(name, raising=False)


def tell(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def recipe(*overrides: str) -> TrainerRecipe:
    return build_trainer_recipe(plain(compose(["trainer.accelerator=cpu", "trainer.virtual_ranks=12", *overrides])))


PLACE = {"rank": 5, "processes": 6, "node": 2, "local_rank": 1, "local_processes": 2}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, Launch()),
        (TORCH, Launch(by="torchrun", **PLACE)),
        (SLURM, Launch(by="srun", **PLACE)),
        ({**SLURM, "SLURM_NTASKS_PER_NODE": "2"}, Launch(by="srun", **PLACE)),
        ({**SLURM, **TORCH}, Launch(by="torchrun", **PLACE)),  # srun has started torchrun
        ({**SLURM, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, Launch()),  # a job of one task
        ({"SLURM_NTASKS": "6", "SLURM_NNODES": "3"}, Launch()),  # the shell of salloc
    ],
)
def test_the_place_is_read_from_whoever_started_the_process(
    environment: dict[str, str], place: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, environment)
    assert launch() == place
    assert launch().nodes == (3 if place.by else 1)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"LOCAL_RANK": "1"}, "RANK: is missing, but torchrun sets it, and the environment has LOCAL_RANK"),
        ({**TORCH, "WORLD_SIZE": "many"}, "WORLD_SIZE: is 'many', no number"),
        ({**TORCH, "WORLD_SIZE": "5"}, "5 processes, of which 2 on this machine; start equally many on each"),
        ({**SLURM, "SLURM_NTASKS": "7"}, "7 tasks cannot be equally many on 3 nodes; use --ntasks-per-node"),
    ],
)
def test_an_environment_that_makes_no_sense_is_one_sentence(
    environment: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, environment)
    with pytest.raises(ConfigError, match=re.escape(said)):
        launch()


@pytest.mark.parametrize(("name", "environment"), [("torchrun", TORCH), ("slurm", SLURM), ("ddp", TORCH)])
def test_a_trainer_takes_the_processes_that_there_are(
    name: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = recipe(f"trainer={name}")
    assert (alone.processes, alone.nodes, alone.total_processes) == (1, 1, 1)
    tell(monkeypatch, environment)
    launched = recipe(f"trainer={name}")
    launched.check_machine()
    assert (launched.processes, launched.nodes, launched.total_processes) == (2, 3, 6)


@pytest.mark.parametrize(
    ("environment", "overrides", "said"),
    [
        ({}, "trainer=torchrun", "trainer.launcher: torchrun has not started this process; docs/scaling.md"),
        (SLURM, "trainer=torchrun", "trainer.launcher: torchrun has not started this process, but srun; docs"),
        (TORCH, "trainer=slurm", "trainer.launcher: srun has not started this process, but torchrun; docs"),
        (TORCH, "trainer=cpu", "trainer.devices: 1 on a machine, but torchrun has started 2; trainer.devices=auto"),
        (SLURM, "trainer=slurm trainer.num_nodes=2", "2 machines, but srun has started processes on 3; trainer.num"),
        ({}, "trainer=ddp trainer.num_nodes=2", "trainer.num_nodes: 2 machines; start one process a GPU on each"),
    ],
)
def test_a_contradiction_between_launcher_and_config_is_one_sentence(
    environment: dict[str, str], overrides: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, environment)
    with pytest.raises(ConfigError, match=re.escape(said)):
        recipe(*overrides.split()).check_machine()


@pytest.mark.parametrize(
    ("environment", "overrides", "said"),
    [
        ({}, "trainer=gpu", "no GPU can be used here; trainer=cpu or trainer=auto trains without one"),
        ({}, "trainer=ddp", "no GPU can be used here; trainer.accelerator=cpu trains without one"),
        (TORCH, "trainer=torchrun", "no GPU can be used here; trainer.accelerator=cpu trains without one"),
        ({}, "trainer=torchrun", "trainer.launcher: torchrun has not started this process; docs/scaling.md"),
    ],
)
def test_without_a_gpu_the_way_out_is_one_that_the_launcher_allows(
    environment: dict[str, str], overrides: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, environment)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=re.escape(said)):
        build_trainer_recipe(plain(compose(overrides.split()))).check_machine()
