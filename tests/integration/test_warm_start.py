"""A run that begins with another's tokenizer and weights: at update 0, and the other stays as it is (G06, G12)."""

from pathlib import Path

import pytest
import torch
from small_runs import checkpoint, run

from crosslight.errors import RunError
from crosslight.runs.checkpoints import file_hash, load_checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "trained"
    run(folder, "trainer.max_steps=8")
    return folder


def test_a_new_run_begins_at_update_0_with_the_final_weights_of_another(trained: Path) -> None:
    files = {path: file_hash(path) for path in trained.rglob("*") if path.is_file()}
    folder = trained.parent / "tuned"
    tune = [f"init_from={trained}", "optimizer.lr=0.0", "trainer.max_steps=6", "callbacks.saver.keep_last=5"]
    run(folder, *tune, "data.num_train=500")
    first, given = checkpoint(folder, 5), load_checkpoint(trained / "checkpoints" / "best.ckpt")
    assert all(torch.equal(first["state_dict"][key], value) for key, value in given["state_dict"].items())
    assert first["global_step"] == 5
    assert (folder / "tokenizer" / "tokenizer.json").read_bytes() == (
        trained / "tokenizer" / "tokenizer.json"
    ).read_bytes()
    assert {path: file_hash(path) for path in trained.rglob("*") if path.is_file()} == files
    trained.rename(trained.parent / "moved")  # a resume needs the other run no more
    try:
        run(folder, *tune, "data.num_train=500", "trainer.max_steps=8")
    finally:
        (trained.parent / "moved").rename(trained)


def test_another_model_and_a_folder_that_is_no_run_are_refused_in_a_sentence(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"^init_from=.*: its weights do not fit this model; .* is \(.*\) there and \(.*\) here"
    ):
        run(trained.parent / "other", f"init_from={trained}", "model.d_model=64")
    with pytest.raises(RunError, match=r"^init_from=.*nowhere: there is no such folder$"):
        run(trained.parent / "nothing", f"init_from={tmp_path}/nowhere")
