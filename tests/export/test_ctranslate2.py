"""Models in CTranslate2: the same numbers, the same translations, and a sentence for what it has not."""

import json
import shutil
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from texts import numbers
from untrained import untrained_run

from crosslight import build
from crosslight.config.compose import CONF, compose
from crosslight.errors import ConfigError, RunError
from crosslight.export import folder as exporting
from crosslight.export.ctranslate2_engine import CTranslate2Engine
from crosslight.export.ctranslate2_spec import check_expressible, pieces
from crosslight.export.folder import NOTE, check_format, write_export
from crosslight.inference import load_run, translate
from crosslight.nn.feed_forward import GATED, PLAIN
from crosslight.runs.folder import RunFolder

SMALL = ["data=copy", "data.num_symbols=9", "data.num_test=4", "data.num_validation=3", "model.dropout=0.0"]
SIZES = ["model.d_model=12", "model.d_ff=20", "model.num_heads=3"]
DEPTHS = ["model.num_encoder_layers=3", "model.num_decoder_layers=2"]
CHOICES = [
    *(
        f"model/{group}={file.stem}"
        for group in ("positions", "residual")
        for file in (CONF / "model" / group).glob("*")
    ),
    *(f"model.activation={name}" for name in (*PLAIN, *GATED)),
    *(f"model.tie={tie}" for tie in ("none", "target_output", "all")),
    *(f"model={file.stem}" for file in (CONF / "model").glob("*.yaml")),
]
LINES = ["1 2 3", "", "8", "4 4 0 7 5 6 1", "3 2", "7 7 7 1 0", "2 8 5 3"]


def run_folder(path: Path, *overrides: str, seed: int = 1) -> RunFolder:
    """What training leaves behind, with every weight random."""
    choice = [override for override in overrides if override.startswith("model=")]
    rest = [override for override in overrides if override not in choice]
    config = build.plain(compose([*choice, *SMALL, *SIZES, *DEPTHS, *rest]))
    tokenizers = numbers(9)
    torch.manual_seed(seed)
    model = build.build_model(config, tokenizers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return untrained_run(path, config, tokenizers, model)


def export(folder: RunFolder) -> Path:
    run = load_run(str(folder.path))
    path = folder.exported / "ctranslate2"
    write_export(run.model, run.tokenizers, folder.best, path)
    return path


@pytest.mark.parametrize("choice", CHOICES)
def test_every_kind_of_model_gives_the_same_log_probabilities(choice: str, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", choice)
    path, run = export(folder), load_run(str(folder.path))
    names = pieces(run.tokenizers.source)
    source, target = [3, 7, 11, 4, 4], [5, 3, 9]
    translator = ctranslate2.Translator(str(path), compute_type="float32")
    theirs = translator.score_batch([[names[i] for i in source]], [[names[i] for i in target]])[0].log_probs
    bos, eos = run.tokenizers.target.bos_id, run.tokenizers.target.eos_id
    with torch.no_grad():
        logits = run.model(torch.tensor([[*source, eos]]), torch.tensor([[bos, *target]]))
    ours = logits.log_softmax(-1)[0].gather(1, torch.tensor([[*target, eos]]).T)[:, 0]
    assert theirs == pytest.approx(ours.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    "decode",
    [
        {"beam_size": 1},
        {"beam_size": 3},
        {"beam_size": 3, "length_penalty": 0.0},
        {"beam_size": 2, "max_len_extra": 0},
        {"beam_size": 2, "max_len_factor": 0.0, "max_len_extra": 1},
    ],
    ids=str,
)
def test_translations_are_the_same_to_the_greatest_length(decode: dict[str, Any], tmp_path: Path) -> None:
    """A random model seldom ends by itself, so most hypotheses are cut: each at its own length."""
    decode = {"max_len_extra": 4, **decode}
    for seed in range(40):  # until one says more than one thing
        folder = run_folder(tmp_path / f"run{seed}", seed=seed)
        ours = translate(load_run(str(folder.path), decode=decode), LINES)
        if len({*ours.lines}) > 3 or decode.get("max_len_factor") == 0:
            break
    else:
        pytest.fail("no model says anything")
    export(folder)
    assert translate(load_run(str(folder.path), decode=decode, engine="ctranslate2"), LINES) == ours
    assert ours.lines[1] == ""


def test_sources_are_cut_where_positions_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = run_folder(
        tmp_path / "run", "model/positions=learned", "model.positions.max_positions=5", "cleaning.max_len=4"
    )
    export(folder)
    found = translate(load_run(str(folder.path), engine="ctranslate2"), ["1 2", "1 2 3 4 5 6"])
    assert found == translate(load_run(str(folder.path)), ["1 2", "1 2 3 4 5 6"])
    assert found.num_cut == 1
    assert "line 2: cut from 6 pieces to 4" in caplog.text


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.encoder_window=2",
            r"^model\.encoder_window: 2; CTranslate2 has no such part; translate\.py without engine",
        )
    ],
)
def test_what_it_cannot_express_is_refused_by_name(override: str, message: str, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", override)
    with pytest.raises(ConfigError, match=message):
        export(folder)
    assert not folder.exported.exists() or not [*folder.exported.iterdir()], "nothing half written is left"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda model: setattr(model.encoder.layers[0].feed_forward, "activation", torch.tanh),
            "model.activation: Feed",
        ),
        (lambda model: setattr(model.source_embedding, "positions", torch.nn.Identity()), "model.positions: Identity"),
        (
            lambda model: setattr(model.decoder.layers[1], "around_self", torch.nn.Identity()),
            "model.residual: Identity",
        ),
    ],
)
def test_parts_of_the_users_own_are_refused_by_name(change: Any, message: str, tmp_path: Path) -> None:
    model = load_run(str(run_folder(tmp_path / "run").path)).model
    check_expressible(model)
    change(model)
    with pytest.raises(ConfigError, match=message):
        check_expressible(model)


def test_a_search_of_the_users_own_is_refused_by_name(tmp_path: Path) -> None:
    class OwnSearch:
        def max_lengths(self, source_lengths: Any, limit: int | None) -> Any:
            return source_lengths

        def __call__(self, step: Any, state: Any, *, bos_id: int, eos_id: int, max_lengths: Any) -> Any:
            return []

    with pytest.raises(ConfigError, match="engine=ctranslate2: has no OwnSearch"):
        CTranslate2Engine(tmp_path, numbers(9), OwnSearch(), limit=None, budget=9, device="cpu", threads=1)  # type: ignore[arg-type]


def test_an_export_moves_with_its_run_and_needs_no_checkpoint(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    export(folder)
    before = translate(load_run(str(folder.path)), LINES)
    moved = shutil.move(folder.path, tmp_path / "elsewhere")
    assert translate(load_run(str(moved), engine="ctranslate2"), LINES) == before
    shutil.rmtree(tmp_path / "elsewhere" / "checkpoints")
    assert translate(load_run(str(moved), engine="ctranslate2"), LINES) == before


def test_an_export_that_is_out_of_date_is_refused_with_the_command(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    command = rf"python scripts/export\.py run={folder.path} format=ctranslate2"
    with pytest.raises(RunError, match=f"nothing is exported there; {command} does it"):
        load_run(str(folder.path), engine="ctranslate2")
    path = export(folder)
    shutil.copy(folder.best, folder.checkpoints / "average.ckpt")
    with pytest.raises(
        RunError, match=rf"from best\.ckpt, not from average\.ckpt; {command} checkpoint=average\.ckpt makes"
    ):
        load_run(str(folder.path), checkpoint="average.ckpt", engine="ctranslate2")
    run_folder(folder.path, "model.activation=gelu")
    with pytest.raises(RunError, match=f"best.ckpt has changed since this was made from it; {command} makes it anew"):
        load_run(str(folder.path), engine="ctranslate2")
    export(folder)
    load_run(str(folder.path), engine="ctranslate2")
    note = json.loads((path / NOTE).read_text())
    (path / NOTE).write_text(json.dumps({**note, "tokenizer_sha256": "0"}))
    with pytest.raises(
        RunError, match=f"was made for another tokenizer than .*tokenizer holds; {command} makes it anew"
    ):
        load_run(str(folder.path), engine="ctranslate2")
    (path / NOTE).write_text("{")
    with pytest.raises(RunError, match=f"cannot be read .*; {command} makes it anew"):
        load_run(str(folder.path), engine="ctranslate2")
    (path / NOTE).write_text(json.dumps(note))
    (path / "model.bin").write_bytes(b"no model")
    with pytest.raises(RunError, match=f"cannot be loaded .*; {command} makes it anew"):
        load_run(str(folder.path), engine="ctranslate2")


def test_an_export_replaces_an_export_and_nothing_else(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    path = export(folder)
    (path / "left_over").touch()
    export(folder)
    assert sorted(file.name for file in path.iterdir()) == [
        *("config.json", "crosslight.json", "model.bin", "shared_vocabulary.json")
    ]
    assert [entry.name for entry in path.parent.iterdir()] == ["ctranslate2"], "what was beside it is gone"
    run = load_run(str(folder.path))
    for taken in (folder.checkpoints, folder.config):
        with pytest.raises(ConfigError, match=f"output={taken}: holds something else than an export"):
            write_export(run.model, run.tokenizers, folder.best, taken)


def test_a_failed_export_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run_folder(tmp_path / "run")
    path = export(folder)
    before = (path / "model.bin").read_bytes()
    monkeypatch.setattr(exporting, "NOTE", "no/such/folder.json")
    run = load_run(str(folder.path))
    (path / "no" / "such").mkdir(parents=True)
    (path / "no" / "such" / "folder.json").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_export(run.model, run.tokenizers, folder.best, path)
    assert (path / "model.bin").read_bytes() == before


def test_formats_and_packages_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^format: 'onnx' is not known; there is ctranslate2$"):
        check_format("format", "onnx")
    check_format("engine", "ctranslate2")
    monkeypatch.setattr(exporting, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"^engine=ctranslate2: the package is not installed; pip install ctranslate2$"
    ):
        check_format("engine", "ctranslate2")
