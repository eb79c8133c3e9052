"""What a resumed run takes from the command line, what from its checkpoint, and what it refuses."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from small_runs import TINY, At, added, assert_same_run, checkpoint, run

from crosslight.build import plain
from crosslight.config.compose import compose
from crosslight.errors import RunError
from crosslight.runs.folder import RunFolder
from crosslight.runs.record import read_record
from crosslight.starting import continued

STOPPING = [
    *("callbacks=[saver,best,progress,ema,early_stopping]", "trainer.max_steps=40"),
    *("+callbacks.early_stopping.min_delta=200", "callbacks.early_stopping.patience=3"),
]
"""No score is good enough, so the fourth validation, after update 16, ends the training."""


class KilledError(Exception):
    """The run ends here."""


def kill(*_: Any) -> None:
    raise KilledError


class KilledInTheEndgame(Callback):
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.state.fn == "validate":
            raise KilledError


def test_a_run_that_was_stopped_early_stays_stopped_until_it_gets_more_patience(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run(whole, *STOPPING)
    with added(KilledInTheEndgame()), pytest.raises(KilledError):
        run(killed, *STOPPING)
    assert run(killed, *STOPPING).content["updates"] == 16
    assert_same_run(whole, killed, 16)
    assert run(killed, *STOPPING, "callbacks.early_stopping.patience=5").content["updates"] == 24


def test_the_record_counts_all_tokens_whenever_the_run_was_killed(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    seldom = "trainer.log_every_n_steps=50"
    run(whole, seldom)
    with added(At("on_train_batch_start", 13, kill)), pytest.raises(KilledError):
        run(killed, seldom)
    run(killed, seldom)
    tokens = [read_record(folder / "record.json")["target_tokens"] for folder in (whole, killed)]
    assert tokens[0] == tokens[1] > 0


@pytest.mark.parametrize("setting", ["trainer.max_epochs=2", "trainer.gradient_clip_val=0.1"])
def test_auto_takes_null_for_none_and_keeps_what_the_program_has_found(setting: str, tmp_path: Path) -> None:
    run(tmp_path / "run", "trainer.max_steps=2", "batching.max_tokens=700", setting)
    key = setting.partition("=")[0]
    later = plain(compose([*TINY, "resume=auto", "batching.max_tokens=auto", f"{key}=null"]))
    config = continued(later, RunFolder(tmp_path / "run"))
    assert config["trainer"][key.partition(".")[2]] is None
    assert config["trainer"]["virtual_ranks"] == 1
    assert config["batching"]["max_tokens"] == 700


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    run(folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, finished.parent / tmp_path.name))


def test_what_comes_back_with_the_optimizers_state_is_refused(folder: Path) -> None:
    with pytest.raises(RunError, match=r"^resume: optimizer\.betas was .* a run keeps its optimizer$"):
        run(folder, "trainer.max_steps=26", "optimizer.betas=[0.5,0.6]")


@pytest.mark.parametrize("name", ["best/update=24.ckpt", "update=20.ckpt"])
def test_a_checkpoint_under_a_wrong_name_is_passed_over(folder: Path, name: str) -> None:
    source = next((folder / "checkpoints" / "best").iterdir()) if "best" in name else folder / "checkpoints" / name
    shutil.copy(source, folder / "checkpoints" / "update=500.ckpt")
    shutil.copy(source, folder / "checkpoints" / "update=20 (copy).ckpt")
    assert run(folder, "trainer.max_steps=26").content["updates"] == 26
    assert checkpoint(folder, 26)["global_step"] == 26


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_damaged_record_is_one_sentence(folder: Path, content: str) -> None:
    (folder / "record.json").write_text(content)
    with pytest.raises(RunError, match=r"record\.json: "):
        run(folder, "trainer.max_steps=26")
    (folder / "record.json").unlink()
    assert run(folder, "trainer.max_steps=26").content["status"] == "finished"


def test_a_tokenizer_of_a_start_that_saved_nothing_is_not_taken_for_another(tmp_path: Path) -> None:
    lines = [" ".join(f"{n}{chr(97 + (n * k) % 26)}" for k in range(1, 6)) for n in range(300)]
    (tmp_path / "text").write_text("\n".join(lines))
    files = [f"data.train.{side}={tmp_path / 'text'}" for side in ("source", "target")]
    others = [setting for setting in TINY if not setting.startswith("data.")]
    settings = [*others, "data=text_files", *files, "data.held_out=21", "trainer.max_steps=6"]

    def start(size: int) -> Any:
        from crosslight.app import train

        config = plain(compose([*settings, f"cache={tmp_path / 'cache'}", f"tokenizer.vocab_size={size}"]))
        (tmp_path / "run").mkdir(exist_ok=True)
        return train(config, RunFolder(tmp_path / "run"))

    with added(At("on_train_batch_start", 3, kill)), pytest.raises(KilledError):
        start(60)
    with pytest.raises(RunError, match=r"^resume: tokenizer\.vocab_size was 60 and is now 70, but .*/tokenizer was"):
        start(70)
    shutil.rmtree(tmp_path / "run" / "tokenizer")
    assert start(70).content["updates"] == 6
    assert checkpoint(tmp_path / "run", 6)["state_dict"]["model.source_embedding.table.weight"].shape[0] == 70
