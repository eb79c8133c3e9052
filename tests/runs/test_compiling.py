"""`trainer.compile`: few graphs, the same losses, the same checkpoints, and a clear message without a compiler."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from crosslight.build import build_trainer_recipe, plain
from crosslight.config.compose import compose
from crosslight.errors import ConfigError
from crosslight.runs.compiling import check_compiler

PROGRAM = Path(__file__).with_name("compiled_training.py")
DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")


def trained(*arguments: str) -> dict[str, Any]:
    environment = {"PYTHONPATH": ":".join(filter(None, [str(PROGRAM.parents[1]), *sys.path]))}
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_batches_of_all_shapes_need_one_graph_a_kind_of_layer_and_learn_the_same() -> None:
    found = trained("model=tiny", "model.dropout=0", "model/positions=rotary", "model/residual=post_norm")
    assert found["graphs"] == 2
    assert not found["breaks"]
    assert found["compiled"] == pytest.approx(found["eager"], rel=1e-4)
    assert found["graphs_of_search"] == 0
    assert found["same_names"]


@pytest.mark.slow
def test_sharding_dropout_and_skipped_layers_need_no_further_graph() -> None:
    dropouts = [f"model.{name}=0.1" for name in DROPOUTS]
    found = trained("sharded", "model=tiny", *dropouts, "model.layer_drop=0.2")
    assert found["graphs"] == 2
    assert not found["breaks"]
    assert median(found["compiled"]) == pytest.approx(median(found["eager"]), rel=0.1)  # other draws
    assert found["graphs_of_search"] == 0
    assert found["same_names"]


def test_compiling_is_off_unless_asked_for() -> None:
    assert not build_trainer_recipe(plain(compose([]))).compile


def test_without_a_compiler_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"^trainer\.compile: true needs a compiler \(g\+\+ or clang\+\+\)"):
        check_compiler(on_gpu=False)
    with pytest.raises(ConfigError, match=r"a compiler \(gcc or clang\).* and the package triton, .*give false$"):
        check_compiler(on_gpu=True)
