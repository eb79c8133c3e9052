"""The commands that export a run and translate with what they have made."""

from pathlib import Path

from commands import Command

TEXT = b"0 1 2 3\n\n11\n5 5 5 1 0 2\n"


def test_the_exported_run_translates_as_the_run_does(command: Command, copier: Path, tmp_path: Path) -> None:
    refused = command("scripts/translate.py", f"run={copier}", "engine=ctranslate2", stdin=TEXT, status=2)
    assert f"python scripts/export.py run={copier} format=ctranslate2" in refused.stderr
    done = command("scripts/export.py", f"run={copier}", "format=ctranslate2")
    assert done.stdout == f"{copier}/exported/ctranslate2\n"
    ours = command("scripts/translate.py", f"run={copier}", stdin=TEXT)
    theirs = command("scripts/translate.py", f"run={copier}", "engine=ctranslate2", stdin=TEXT)
    assert theirs.stdout == ours.stdout == TEXT.decode()
    elsewhere = command("scripts/export.py", f"run={copier}", "format=ctranslate2", f"output={tmp_path}/served/model")
    assert elsewhere.stdout == f"{tmp_path}/served/model\n"
    assert (tmp_path / "served" / "model" / "model.bin").is_file()


def test_mistakes_are_answered_in_a_sentence(command: Command, copier: Path) -> None:
    for arguments, sentence in (
        (("format=onnx",), "format: 'onnx' is not known; there is ctranslate2"),
        ((), "format: missing; give format=…"),
        (("format=ctranslate2", "checkpoint=none.ckpt"), "checkpoints/none.ckpt: there is no such checkpoint"),
    ):
        done = command("scripts/export.py", f"run={copier}", *arguments, status=2)
        assert sentence in done.stderr
        assert done.stderr.count("\n") == 1
    done = command("scripts/translate.py", f"run={copier}", "engine=fast", status=2)
    assert done.stderr == "error: engine: 'fast' is not known; there is ctranslate2\n"
