"""What goes wrong in training: no numbers, no memory, a damaged checkpoint, a full disk, two runs at once."""

import errno
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import At, added, assert_same_run, checkpoint, run

from crosslight.callbacks.divergence import DivergedError
from crosslight.errors import RunError
from crosslight.runs import checkpoints
from crosslight.runs.record import read_record
from crosslight.tasks.seq2seq import Seq2SeqTask


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    run(folder)
    return folder


@pytest.fixture
def folder(unbroken: Path, tmp_path: Path) -> Path:
    """A folder for a run; it shares the cache of prepared data."""
    return unbroken.parent / tmp_path.name


def spoil(trainer: Any, module: Any, *_: Any) -> None:
    """The next forward pass gives NaN, once."""
    original = module.loss_of

    def spoiled(batch: Any) -> Any:
        module.loss_of = original
        loss = original(batch)
        return type(loss)(loss.total * float("nan"), loss.nll * float("nan"), loss.count)

    module.loss_of = spoiled


def test_a_divergence_stops_names_the_sentences_and_keeps_the_last_good_checkpoint(folder: Path) -> None:
    with added(At("on_train_batch_start", 7, spoil)), pytest.raises(DivergedError) as error:
        run(folder)
    text = str(error.value)
    assert text.startswith("update 8 (epoch 1): the loss is nan and the norm of the gradient")
    assert "the last good checkpoint is update=5.ckpt; try a lower optimizer.lr" in text
    lines = (folder / "diverged_update=8.tsv").read_text().splitlines()
    assert lines[0] == "row\tsource\ttarget"
    assert f"it was made of {len(lines) - 1} sentences, rows {lines[1].split()[0]}, " in text
    assert all(source == target for _, source, target in (line.split("\t") for line in lines[1:]))  # the copy task
    record = read_record(folder / "record.json")
    assert record["status"] == "failed"
    assert "update 8" in record["error"]
    assert all(bool(value.isfinite().all()) for value in checkpoint(folder, 5)["state_dict"].values())


def test_a_rollback_goes_on_from_the_last_checkpoint_without_those_sentences(folder: Path) -> None:
    with added(At("on_train_batch_start", 7, spoil)):
        record = run(folder, "trainer.on_divergence=rollback")
    assert record.content["status"] == "finished"
    (rollback,) = record.content["rollbacks"]
    assert rollback["rate_factor"] == 0.5
    assert rollback["error"].startswith("update 8 (epoch 1)")
    last = checkpoint(folder, 24)
    assert last["left_out"]["windows"] == [[1, 1]]
    config = last["crosslight"]["config"]
    warming_up = config["optimizer"]["lr"] * 24 / config["scheduler"]["warmup_steps"]
    assert last["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(warming_up / 2)


def test_a_run_that_was_resumed_after_a_rollback_still_tells_of_it(folder: Path) -> None:
    def kill(*_: Any) -> None:
        raise RunError("killed")

    again = At("on_train_batch_start", 13, kill)
    with added(At("on_train_batch_start", 7, spoil), again), pytest.raises(RunError, match="killed"):
        run(folder, "trainer.on_divergence=rollback")
    record = run(folder, "trainer.on_divergence=rollback")
    (rollback,) = record.content["rollbacks"]
    assert rollback["error"].startswith("update 8 (epoch 1)")


def test_a_run_that_diverges_again_and_again_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Seq2SeqTask.loss_of

    def always(self: Any, batch: Any) -> Any:
        loss = original(self, batch)
        factor = float("nan") if self.trainer.global_step >= 6 else 1.0
        return type(loss)(loss.total * factor, loss.nll, loss.count)

    monkeypatch.setattr(Seq2SeqTask, "loss_of", always)
    with pytest.raises(DivergedError, match=r"^update 7 \(epoch 1\)"):
        run(folder, "trainer.on_divergence=rollback")


def short_of_memory(trainer: Any, module: Any, *_: Any) -> None:
    """The next forward pass has no memory, once."""
    original = module.loss_of

    def failing(batch: Any) -> Any:
        module.loss_of = original
        original(batch)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    module.loss_of = failing


def test_an_update_without_memory_is_left_out_counted_and_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with added(At("on_train_batch_start", 7, short_of_memory)):
        record = run(folder)
    (skipped,) = record.content["skipped"]
    assert (skipped["epoch"], skipped["window"]) == (1, 1)
    rows = skipped["sentences"]
    assert len(set(rows)) == len(rows) > 20
    (message,) = [r.getMessage() for r in caplog.records if "did not fit into memory" in r.getMessage()]
    said = f"an update of {len(rows)} sentences did not fit into memory and was left out (1 so far): rows {rows[0]}, "
    assert said in message
    assert checkpoint(folder, 24)["TranslationData"]["updates"] == 1  # one window more than updates: 25 = 4 * 6 + 1
    assert checkpoint(folder, 24)["left_out"]["skipped"] == record.content["skipped"]


def test_on_oom_stop_ends_with_a_sentence(folder: Path) -> None:
    sentence = (
        r"^a batch of \d+ tokens did not fit into memory \(CUDA out .*\); its sentences are rows \d+.*on_oom=skip$"
    )
    with added(At("on_train_batch_start", 7, short_of_memory)), pytest.raises(RunError, match=sentence):
        run(folder, "trainer.on_oom=stop")


@pytest.mark.parametrize("damage", ["a flipped bit", "a lost end"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    unbroken: Path, folder: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    run(folder, "trainer.max_steps=17")
    newest = folder / "checkpoints" / "update=17.ckpt"
    content = bytearray(newest.read_bytes())
    if damage == "a flipped bit":
        content[len(content) // 2] ^= 1
    newest.write_bytes(content if damage == "a flipped bit" else content[:-1000])
    caplog.clear()
    caplog.set_level(logging.INFO)
    run(folder)
    (warning,) = [r.getMessage() for r in caplog.records if "the checkpoint before it is used" in r.getMessage()]
    assert str(newest) in warning
    assert "damaged" in warning
    assert any("update=15.ckpt" in r.getMessage() for r in caplog.records if "resuming from" in r.getMessage())


def test_a_run_without_any_whole_checkpoint_is_refused_and_left_alone(unbroken: Path, folder: Path) -> None:
    shutil.copytree(unbroken, folder)
    for path in (folder / "checkpoints").glob("update=*"):
        path.write_bytes(b"nothing")
    before = (folder / "record.json").read_bytes()
    with pytest.raises(RunError, match=r"checkpoints: none of its \d checkpoints can be used; start a new run$"):
        run(folder, "trainer.max_steps=30")
    assert (folder / "record.json").read_bytes() == before


def test_a_full_disk_ends_with_a_sentence_and_the_checkpoint_before_intact(
    unbroken: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = torch.save

    def full(content: Any, file: Any) -> None:
        if content.get("global_step") == 10:
            file.write(b"PK half of it")
            raise OSError(errno.ENOSPC, "No space left on device")
        original(content, file)

    monkeypatch.setattr(checkpoints.torch, "save", full)
    with pytest.raises(RunError, match=r"update=10\.ckpt: cannot be written \(.*No space left on device\); what was"):
        run(folder)
    monkeypatch.undo()
    assert [path.name for path in sorted((folder / "checkpoints").glob("update*"))] == ["update=5.ckpt"]
    assert json.loads((folder / "record.json").read_text())["status"] == "failed"
    run(folder)
    assert_same_run(unbroken, folder)


def test_two_processes_do_not_train_in_one_folder(unbroken: Path, folder: Path) -> None:
    def second(*_: Any) -> None:
        with pytest.raises(RunError, match=r"another process is training in this folder; end it first$"):
            run(folder)

    with added(At("on_train_batch_start", 3, second)):
        run(folder)
    assert_same_run(unbroken, folder)


def test_what_has_changed_at_a_resume_is_said_or_refused(
    unbroken: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(unbroken, folder)
    caplog.set_level(logging.INFO)
    run(folder, "trainer.max_steps=26", "optimizer.lr=5e-4", "trainer.threads=2")
    said = [record.getMessage() for record in caplog.records]
    assert "resume: optimizer.lr was 0.002 and is now 0.0005" in said
    assert "resume: trainer.max_steps was 24 and is now 26" in said
    assert any("threads of a process was 1 and is now 2" in line for line in said)
    assert read_record(folder / "record.json")["bits_may_differ"] == [
        "from update 24 on: threads of a process was 1 and is now 2"
    ]
    with pytest.raises(RunError, match=r"^resume: model\.d_model was 32 and is now 64; a run keeps its model$"):
        run(folder, "model.d_model=64")
