"""Using a run folder: the scripts do it without Lightning, and one that is damaged or hostile is refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from texts import numbers
from untrained import untrained_run

from crosslight import build
from crosslight.config.compose import CONF, compose
from crosslight.errors import ConfigError, RunError
from crosslight.inference import load_run, translate
from crosslight.runs.checkpoints import save_checkpoint
from crosslight.runs.folder import RunFolder

SIZES = ["model.d_model=8", "model.d_ff=12", "model.num_heads=2", "data.num_test=4", "data.num_validation=3"]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """What training leaves behind, untrained."""
    config = build.plain(compose(["data=copy", *SIZES, "data.num_symbols=5", "data.max_length=6"]))
    tokenizers = numbers(5)
    torch.manual_seed(1)
    model = build.build_model(config, tokenizers)
    return untrained_run(tmp_path / "run", config, tokenizers, model)


def test_the_scripts_do_their_work_without_lightning(folder: RunFolder) -> None:
    code = f"""
import runpy, sys
for script in ("translate", "evaluate"):
    sys.argv = [script, "run={folder.path}"]
    runpy.run_path(f"{CONF.parent}/scripts/{{script}}.py", run_name="__main__")
loaded = [m for m in sys.modules if m.split(".")[0] in ("lightning", "pytorch_lightning")]
sys.exit(f"{{len(loaded)}} modules of Lightning were imported" if loaded else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], input="1 2\n\n3\n", capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 + 4, done.stderr  # three translations, four scores
    assert lines[1] == ""
    assert [line.split()[2] for line in lines[3:]] == ["bleu", "chrf", "exact_match", "loss"]
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_sound_folder_can_be_used_after_a_move(folder: RunFolder, tmp_path: Path) -> None:
    before = translate(load_run(str(folder.path)), ["1 2 3", "", "4"])
    folder.path.rename(tmp_path / "elsewhere")
    assert translate(load_run(str(tmp_path / "elsewhere")), ["1 2 3", "", "4"]) == before
    assert before.lines[1] == ""
    assert len(before.lines) == 3


def _set_in_config(group: str, **values: Any) -> Callable[[RunFolder, Path], None]:
    def change(folder: RunFolder, marker: Path) -> None:
        def marked(value: Any) -> Any:
            return value.replace("MARKER", str(marker)) if isinstance(value, str) else value

        config = yaml.safe_load(folder.config.read_text())
        new = {key: marked(value) for key, value in values.items()}
        config[group] = new if "_target_" in new else config[group] | new
        folder.config.write_text(yaml.safe_dump(config))

    return change


class Evil:
    """Its pickle creates the marker."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def _evil_checkpoint(folder: RunFolder, marker: Path) -> None:
    torch.save({"state_dict": {}, "crosslight": Evil(marker)}, folder.best)


def _loader_of_an_evil_file(folder: RunFolder, marker: Path) -> None:
    torch.save(Evil(marker), folder.path / "evil.pt")
    _set_in_config("decode", _target_="torch.load", f=str(folder.path / "evil.pt"), weights_only=False)(folder, marker)


@pytest.mark.parametrize(
    "attack",
    [
        _evil_checkpoint,
        _loader_of_an_evil_file,
        _set_in_config("decode", _target_="pathlib.Path.touch", self="MARKER"),
        _set_in_config("scheduler", _target_="crosslight.build.instantiate", config={"x": 1}),
        _set_in_config("model", activation="${oc.create:{_target_:pathlib.Path.touch,self:'MARKER'}}"),
        lambda folder, marker: folder.config.write_text(f"!!python/object/apply:pathlib.Path.touch ['{marker}']\n"),
    ],
    ids=["checkpoint", "torch.load", "foreign target", "instantiate", "interpolation", "yaml"],
)
def test_a_hostile_folder_is_refused_and_runs_nothing(
    attack: Callable[[RunFolder, Path], None], folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    attack(folder, Path("marker"))
    try:
        with pytest.raises((RunError, ConfigError), match=r"refused|config\.yaml: "):
            load_run(str(folder.path))
    finally:
        assert not list(tmp_path.rglob("*marker*")), "it ran"


def _no_checkpoint_of_ours(folder: RunFolder) -> None:
    save_checkpoint({"weights": torch.ones(2)}, folder.best)


def _other_tokenizer(folder: RunFolder) -> None:
    numbers(6).save(folder.tokenizer)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: folder.best.unlink(), r"best\.ckpt: there is no such checkpoint"),
        (lambda folder: folder.best.write_bytes(folder.best.read_bytes()[:500]), r"best\.ckpt: damaged"),
        (_no_checkpoint_of_ours, r"best\.ckpt: "),
        (_other_tokenizer, r"best\.ckpt: the tokenizer in .*/tokenizer does not match this checkpoint"),
        (
            lambda folder: (folder.tokenizer / "source.model").write_text("6\n"),
            "do not match the hash in tokenizer.json",
        ),
        (lambda folder: (folder.tokenizer / "tokenizer.json").unlink(), "no usable tokenizer in this run folder"),
        (lambda folder: folder.config.write_text("name: [x\n"), r"config\.yaml: "),
        (lambda folder: folder.config.write_text(""), r"config\.yaml: "),
    ],
    ids=["gone", "cut", "foreign", "swapped tokenizer", "damaged tokenizer", "no tokenizer", "not YAML", "empty"],
)
def test_a_damaged_folder_is_named(damage: Callable[[RunFolder], Any], message: str, folder: RunFolder) -> None:
    damage(folder)
    with pytest.raises(RunError, match=message):
        load_run(str(folder.path))
