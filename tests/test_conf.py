"""Every file under `conf/`, found by the test itself: it says what it is, composes, passes the check and builds."""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from crosslight import build
from crosslight.config.compose import CONF, compose
from crosslight.data.corpus import Corpus
from crosslight.decoding.protocols import Search
from crosslight.models.encoder_decoder import parameters_by_part
from crosslight.objectives.base import Objective
from crosslight.optim.schedules import Schedule
from crosslight.runs.folder import RunFolder
from crosslight.runs.trainer import TrainerRecipe
from crosslight.tokenizers.base import TokenizerRecipe, Tokenizers
from crosslight.tokenizers.integers import IntegerTokenizer

# Training files that exist, and a corpus whose own file sets nothing outside `data`: what another group chooses stays.
QUIET_DATA = ["data=text_files", "data.train.source=train.source", "data.train.target=train.target"]


def _listed(group: str, *needed: str) -> Callable[[str], list[str]]:
    """How to choose a file of a group that is chosen as a list, together with the files that it refers to."""
    return lambda name: [*QUIET_DATA, f"{group}=[{','.join(dict.fromkeys((*needed, name)))}]"]


def _single(group: str) -> Callable[[str], list[str]]:
    return lambda name: [*QUIET_DATA, f"{group}={name}"]


SELECT: dict[str, Callable[[str], list[str]]] = {
    **{group: _single(group) for group in ("model", "model/positions", "model/residual", "task", "optimizer")},
    **{group: _single(group) for group in ("scheduler", "decode", "trainer", "cleaning", "batching")},
    "task/objective": lambda name: [
        *(*QUIET_DATA, f"task/objective={name}"),
        *(["task.objective.teacher=teacher"] if name == "distillation" else []),
    ],
    "data": lambda name: QUIET_DATA if name == "text_files" else [f"data={name}"],
    "tokenizer": lambda name: ["data=copy", "tokenizer=integers"] if name == "integers" else _single("tokenizer")(name),
    "averaging": _single("averaging"),
    "callbacks": _listed("callbacks", "best"),
    "logger": _listed("logger"),
    "experiment": lambda name: [f"experiment={name}"],
}
"""What to say on the command line to choose the file of that name in a group. A new group needs an entry."""

FILES = sorted(path.relative_to(CONF).as_posix() for path in CONF.rglob("*.y*ml"))


@functools.cache
def chosen(file: str) -> DictConfig:
    """The composed config in which a file of `conf/` is in force."""
    group, _, name = file.removesuffix(".yaml").rpartition("/")
    if not group:
        return compose([], config_name=name)
    if group not in SELECT:
        pytest.fail(f"conf/{file}: nobody says how group {group!r} is chosen; add it to SELECT in tests/test_conf.py")
    return compose(SELECT[group](name))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder that has training files and what looks like a trained run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "teacher" / "checkpoints").mkdir(parents=True)
    for name in ("config.yaml", "checkpoints/best.ckpt"):
        (tmp_path / "teacher" / name).touch()
    (tmp_path / "train.source").write_text("one two\n" * 3)
    (tmp_path / "train.target").write_text("eins zwei\n" * 3)


def test_the_files_of_every_kind_are_found() -> None:
    assert {"train.yaml", "model/base.yaml", "model/positions/rotary.yaml", "experiment/debug.yaml"} <= set(FILES)
    assert {"cleaning/light.yaml", "cleaning/strict.yaml", "batching/tokens.yaml"} <= set(FILES)
    assert all(file.endswith(".yaml") for file in FILES), "Hydra reads no .yml"
    assert set(SELECT) == {file.rpartition("/")[0] for file in FILES if "/" in file}, "SELECT has a group that is gone"


def test_a_file_in_an_unknown_group_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="launcher"):
        chosen("launcher/slurm.yaml")


@pytest.mark.parametrize("file", FILES)
def test_each_file_says_in_its_first_lines_what_it_is(file: str) -> None:
    lines = (CONF / file).read_text(encoding="utf-8").splitlines()
    comments = [line for line in lines[:3] if line.startswith("#") and "@package" not in line]
    assert lines[0].startswith("#")
    assert comments
    assert len(comments[0].lstrip("# ")) > 15, "a comment that says something"


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


@pytest.mark.parametrize("file", [file for file in FILES if "/" in file])
def test_what_a_file_says_is_in_the_composed_config(file: str) -> None:
    text = (CONF / file).read_text(encoding="utf-8")
    content = OmegaConf.to_container(OmegaConf.load(CONF / file))
    assert isinstance(content, dict)
    content.pop("defaults", None)
    package = "" if "@package _global_" in text else file.rpartition("/")[0].replace("/", ".")
    composed = dict(_leaves(OmegaConf.to_container(chosen(file))))
    for path, value in _leaves(content, package):
        if path not in ("data.train.source", "data.train.target", "task.objective.teacher"):  # the command line's
            assert composed[path] == value, path


@pytest.mark.parametrize("file", FILES)
def test_every_file_composes_passes_the_check_and_builds(file: str, tmp_path: Path) -> None:
    config = build.plain(chosen(file))
    before = copy.deepcopy(config)
    build.check(config)
    assert isinstance(build.build_corpus(config), Corpus)
    cleaning, batching = build.build_cleaning(config), build.build_batching(config)
    assert cleaning.options == {key: value for key, value in config["cleaning"].items() if key != "_target_"}
    assert dataclasses.asdict(batching) == {k: v for k, v in config["batching"].items() if k != "_target_"}
    assert isinstance(build.build_tokenizer_recipe(config), TokenizerRecipe)
    tokenizers = _tokenizers(config)
    with torch.device("meta"):
        model = build.build_model(config, tokenizers)
    assert sum(parameters_by_part(model).values()) == sum(p.numel() for p in model.parameters())
    search = build.build_search(config)
    assert isinstance(search, Search)
    schedule = build.make(config["scheduler"])
    assert isinstance(schedule, Schedule)
    assert 0 <= schedule(1, config["optimizer"]["lr"]) < float("inf")
    optimizer = build.make(config["optimizer"])([{"params": [torch.nn.Parameter(torch.ones(2, 3))]}])
    assert optimizer.defaults["lr"] == config["optimizer"]["lr"]
    recipe = build.build_trainer_recipe(config)
    assert isinstance(recipe, TrainerRecipe)
    task = build.build_task(
        config,
        model=model,
        search=search,
        tokenizers=tokenizers,
        recipe=recipe,
        test_langs={"test": "de"},
        load_run=lambda path: SimpleNamespace(model=copy.deepcopy(model), tokenizers=tokenizers),
    )
    assert task.model is model
    assert isinstance(task.objective, Objective)
    callbacks = build.build_callbacks(config, recipe)
    assert len(callbacks) == 2 + len(config["callbacks"] or {}), "and those that end a run"
    loggers = build.build_loggers(config, tmp_path, update=0)
    trainer = _on_this_machine(recipe).build(RunFolder(tmp_path), callbacks, loggers)
    assert {type(c) for c in callbacks} <= {type(c) for c in trainer.callbacks}
    assert trainer.loggers == loggers
    assert config == before, "building must not change the config, for it is what the run folder keeps"


def _on_this_machine(recipe: TrainerRecipe) -> TrainerRecipe:
    """The recipe as it is where it can be had, else for the CPU: the strategy and the precision can still be wrong."""
    return recipe if torch.cuda.is_available() else dataclasses.replace(recipe, accelerator="cpu")


def _tokenizers(config: dict[str, Any]) -> Tokenizers:
    """Of the size that the config asks for, untrained."""
    size = config["tokenizer"].get("vocab_size") or config["tokenizer"]["num_symbols"]
    source = IntegerTokenizer(size - 3)
    target = source if config["tokenizer"].get("joint", True) else IntegerTokenizer(size - 5)
    return Tokenizers(source, target, kind="integers")


@pytest.mark.parametrize(("name", "millions"), [("base", 65), ("big", 213)])
def test_base_and_big_are_as_large_as_the_paper_prints(name: str, millions: int) -> None:
    """Vaswani et al. 2017, table 3; about 37,000 shared pieces (section 5.1)."""
    config = build.plain(compose([*QUIET_DATA, f"model={name}", "tokenizer.vocab_size=37000"]))
    with torch.device("meta"):
        model = build.build_model(config, _tokenizers(config))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.04)


def test_the_default_cache_lies_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `~` that nobody expands makes a folder of that name wherever the user stands."""
    monkeypatch.delenv("CROSSLIGHT_CACHE", raising=False)
    config = build.plain(compose(QUIET_DATA))
    recipe: Any = build.build_tokenizer_recipe(config)
    assert recipe.cache == Path.home() / ".cache" / "crosslight" / "tokenizers"
    assert Path(config["cache"]).expanduser() == recipe.cache.parent


def test_the_cache_moves_with_one_variable_or_one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSLIGHT_CACHE", "/from/outside")
    for overrides, folder in (([], "/from/outside"), (["cache=/chosen"], "/chosen")):
        config = build.plain(compose([*QUIET_DATA, *overrides]))
        recipe: Any = build.build_tokenizer_recipe(config)
        assert (config["cache"], recipe.cache) == (folder, Path(folder) / "tokenizers")


@pytest.mark.parametrize(("choice", "count"), [("[]", 0), ("null", 0), ("[csv,tensorboard]", 2)])
def test_any_number_of_loggers_can_be_chosen(choice: str, count: int, tmp_path: Path) -> None:
    config = build.plain(compose([*QUIET_DATA, f"logger={choice}"]))
    build.check(config)
    assert len(build.build_loggers(config, tmp_path, update=0)) == count
