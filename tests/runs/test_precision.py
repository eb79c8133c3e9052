"""`trainer.precision=auto` asks for instructions and for a model that gains, and a run keeps what it has found."""

from typing import Any

import pytest
import torch

from crosslight.build import build_trainer_recipe, plain
from crosslight.config.compose import compose
from crosslight.runs.precision import chosen_precision
from crosslight.starting import continued


def on_a_processor(monkeypatch: pytest.MonkeyPatch, **capabilities: Any) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": "bf16", "avx2": True, **capabilities})


@pytest.mark.parametrize("instructions", ["avx512_bf16", "amx_bf16", "bf16"])
def test_wide_models_take_bfloat16_where_the_processor_has_instructions(
    monkeypatch: pytest.MonkeyPatch, instructions: str
) -> None:
    on_a_processor(monkeypatch, **{instructions: True})
    assert chosen_precision({"d_model": 512}, on_gpu=False)[0] == "bf16"
    assert chosen_precision({"d_model": 128}, on_gpu=False) == (
        "32",
        "a model of d_model=128 gains nothing from the processor's bfloat16",
    )
    on_a_processor(monkeypatch, **{instructions: False})
    assert chosen_precision({"d_model": 512}, on_gpu=False) == ("32", "this processor has no bfloat16 instructions")


def test_a_torch_that_cannot_tell_gives_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert chosen_precision({"d_model": 512}, on_gpu=False)[0] == "32"


def test_the_trainer_computes_in_what_was_chosen_and_a_number_wins_over_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_processor(monkeypatch, avx512_bf16=True)

    def precision(*overrides: str) -> str | int:
        return build_trainer_recipe(plain(compose(["trainer=cpu", *overrides]))).precision

    assert precision("model=base") == "bf16-mixed"
    assert precision("model=tiny") == "32-true"
    assert precision("model=base", "trainer.precision=32") == "32-true"
    assert precision("model=tiny", "trainer.precision=bf16") == "bf16-mixed"


def test_a_run_that_goes_on_elsewhere_keeps_its_precision(tmp_path: Any) -> None:
    from crosslight.runs.folder import RunFolder

    config = plain(compose(["trainer=cpu"]))
    folder = RunFolder(tmp_path)
    folder.write_config({**config, "trainer": {**config["trainer"], "precision": "bf16"}})
    assert continued(config, folder)["trainer"]["precision"] == "bf16"
    chosen = {**config, "trainer": {**config["trainer"], "precision": 32}}
    assert continued(chosen, folder)["trainer"]["precision"] == 32
