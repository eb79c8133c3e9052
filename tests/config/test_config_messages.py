"""What a user reads who mistyped something, on the command line or in an experiment file, before data is touched."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import crosslight.config.compose
from crosslight import build
from crosslight.config.check import RUNTIME
from crosslight.config.compose import CONF, compose
from crosslight.data.corpus import Corpus
from crosslight.errors import ConfigError

HEADS = "model.nheads: EncoderDecoder has no parameter 'nheads'; did you mean 'num_heads'?"


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for data in here fails."""
    monkeypatch.setattr("crosslight.build.build_corpus", lambda config: pytest.fail("data was touched"))
    for name in ("training_pairs", "validation_pairs", "test_pairs"):
        monkeypatch.setattr(Corpus, name, lambda self: pytest.fail("data was touched"))


def complaint(*overrides: str) -> str:
    """What the user of `python train.py <overrides>` is told; the test fails if nothing is."""
    with pytest.raises(ConfigError) as error:
        build.check(build.plain(compose(list(overrides))))
    return str(error.value)


@pytest.fixture
def experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives the complaint about an experiment file of that content, in a copy of `conf/`."""
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(crosslight.config.compose, "CONF", tmp_path / "conf")

    def of(content: str) -> str:
        text = f"# @package _global_\n# An experiment with a mistake.\n{content}"
        (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(text)
        return complaint("experiment=mine")

    return of


def test_without_a_mistake_there_is_no_complaint() -> None:
    build.check(build.plain(compose(["model.num_heads=8", "seed=3", "trainer.precision=bf16", "expect.bleu=30"])))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # misspelt keys
        ("model.nheads=3", HEADS),
        ("+model.nheads=3", HEADS),
        ("++model.nheads=3", HEADS),
        (
            "trainer.maxsteps=9",
            "trainer.maxsteps: TrainerRecipe has no parameter 'maxsteps'; did you mean 'max_steps'?",
        ),
        ("optimizer.lrr=1", "optimizer.lrr: Adam has no parameter 'lrr'; did you mean 'lr'?"),
        (
            "model.positions.bas=9 model/positions=rotary",
            "model.positions.bas: RotaryPositions has no parameter 'bas'; did you",
        ),
        ("data.train.source=a", "data.train: SyntheticPairs has no parameter 'train'"),
        (
            "callbacks.best.montor=val/bleu",
            "callbacks.best.montor: Best has no parameter 'montor'; did you mean 'monitor'?",
        ),
        ("sed=3", "sed: there is no such setting; did you mean 'seed'?"),
        ("++sed=3", "sed: there is no such setting; did you mean 'seed'?"),
        ("modle.num_heads=4", "modle: there is no such setting; did you mean 'model'?"),
        ("callbacks.progres.seconds=1", "callbacks.progres: there is no such callback; did you mean 'progress'?"),
        ("logger.csv.flush=1", "logger.csv: there is no such logger; choose it with logger=[…]"),
        # groups and options
        ("modl=base", "modl: there is no such setting; did you mean 'model'?"),
        ("model=bas", "In 'train': Could not find 'model/bas' Available options in 'model': base big"),
        ("model/positions=rotry", "In 'model/tiny': Could not find 'model/positions/rotry' Available options in"),
        ("model/position=rotary", "Could not override 'model/position'"),
        ("callbacks=[saver,bests]", "In 'train': Could not load 'callbacks/bests'"),
        ("experiment=nope", "In 'train': Could not find 'experiment/nope' Available options in 'experiment': debug"),
        ("model=[tiny,small]", "model"),
        ("foo", "Error parsing override 'foo' missing EQUAL"),
        # wrong types
        ("model.d_model=abc", "model.d_model: 'abc' is not a whole number"),
        ("model.d_model=", "model.d_model: '' is not a whole number"),
        ("model.d_model=1.5", "model.d_model: 1.5 is not a whole number"),
        ("model.dropout=true", "model.dropout: True is not a number"),
        ("model.dropout=null", "model.dropout: None is not a number"),
        (
            "model.positions=rotary",
            "model.positions: 'rotary' is not a PositionsKind; a choice is written model/positions=rotary",
        ),
        (
            "task.objective=r_drop",
            "task.objective: 'r_drop' is not an Objective; a choice is written task/objective=r_drop",
        ),
        (
            "task.no_decay=[norm]",
            "task.no_decay: ['norm'] is not a list, each one of 'norms', 'biases', 'embeddings'",
        ),
        ("optimizer.lr=abc", "optimizer.lr: 'abc' is not a number"),
        ("optimizer.betas=3", "optimizer.betas: 3 is not "),
        ("trainer.devices=two", "trainer.devices: 'two' is not a whole number or one of 'auto'"),
        ("data=wmt14 data.test_splits=3", "data.test_splits: 3 is not a"),
        ("seed=abc", r".*seed.*'abc'.* Integer"),
        ("seed=1.5", r".*seed.*'1\.5'.* Integer"),
        ("expect.bleu=abc", r".*expect\.bleu.*'abc'.* Float"),
        # choices
        ("model.tie=al", "model.tie: 'al' is not one of 'none', 'target_output', 'all'"),
        ("trainer.strategy=dpp", "trainer.strategy: 'dpp' is not one of 'auto', 'ddp', 'fsdp'"),
        ("callbacks.best.mode=most", "callbacks.best.mode: 'most' is not one of 'max', 'min'"),
        # missing
        ("~model.d_ff", "model.d_ff: missing; EncoderDecoder needs it"),
        ("~decode.length_penalty", "decode.length_penalty: missing; BeamSearch needs it"),
        ("model.d_ff=???", "model.d_ff: a value is needed; give model.d_ff=… on the command line"),
        ("name=???", "name: a value is needed; give name=… on the command line"),
        ("model/positions=learned ~model.positions.max_positions", "model.positions.max_positions: missing"),
        # rules of one class
        ("trainer.precision=16 trainer=cpu", "trainer.precision: 16 needs a GPU; bf16 works on this processor"),
        ("trainer.precision=tf32 trainer=cpu", "trainer.precision: tf32 needs a GPU; bf16 works on this processor"),
        ("trainer.precision=64", "trainer.precision: '64' is not one of auto, 32, tf32, bf16, 16"),
        (
            "trainer.virtual_ranks=3 trainer=ddp_cpu",
            "trainer.virtual_ranks: 3 cannot be shared equally by 2 processes; take a multiple of 2",
        ),
        ("trainer.max_steps=0", "trainer.max_steps: 0 is less than 1"),
        ("trainer.devices=0", "trainer.devices: 0 is less than 1"),
        ("trainer.devices=-1", "trainer.devices: -1 is less than 1"),
        ("trainer.virtual_ranks=0", "trainer.virtual_ranks: 0 is less than 1"),
        ("trainer.max_time=3h", "trainer.max_time: '3h' is not \"DD:HH:MM:SS\", such as"),
        ("task/objective=r_drop task.objective.alpha=-1.0", "task.objective.alpha: -1.0 is negative; give 0 or more"),
        ("task/objective=distillation", "task.objective.teacher: a value is needed; give task.objective.teacher=…"),
        ("decode.beam_size=0", "decode.n_best: need 1 <= n_best=1 <= decode.beam_size=0"),
        ("scheduler.warmup_steps=-1", "scheduler.warmup_steps: -1 is negative; 0 is no warm-up"),
        ("scheduler.floor=1.5", "scheduler.floor: 1.5 is no share of optimizer.lr; give a number from 0 to 1"),
        (
            "scheduler=wsd scheduler.decay_steps=2000",
            "scheduler.decay_steps: 2000 is not within scheduler.total_steps=1000",
        ),
        ("scheduler=wsd trainer.max_steps=abc", "scheduler.total_steps: 'abc' is not a whole number"),
        (
            "scheduler.total_steps=900",
            "scheduler.total_steps: 900 ends before trainer.max_steps=1000; give scheduler.t",
        ),
        # rules that span groups
        (
            "data=wmt14 tokenizer.joint=false",
            "model.tie: 'all' shares one table for both sides, but tokenizer.joint=false makes two",
        ),
        ("model.num_heads=7", "model.num_heads: 7 does not divide model.d_model=128; divisors near it are 4 and 8"),
        ("model.num_heads=0", "model.num_heads: 0"),
        (
            "cleaning.max_len=64 model/positions=learned model.positions.max_positions=64",
            "model.positions.max_positions: 64 does not cover cleaning.max_len=64 and EOS; take at least 65",
        ),
        ("data.num_symbols=40 tokenizer.num_symbols=39", "tokenizer.num_symbols: 39 is fewer than data.num_symbols=40"),
        ("expect.blue=3", "expect.blue: not a test score; there are bleu, chrf, exact_match"),
        ("callbacks.best.monitor=val/blue", "callbacks.best.monitor: 'val/blue' is not one of val/bleu, val/chrf"),
        ("~callbacks.best", "callbacks.best: missing"),
        ("callbacks=[saver,progress] data=text_files", "callbacks.best: missing"),
        ("callbacks=[saver]", "callbacks.best: there is no such callback; choose it with callbacks=[…]"),
        (
            "callbacks.saver.keep_last=2",
            "averaging.last: 5 is more than callbacks.saver.keep_last=2 checkpoints, which",
        ),
        ("callbacks.best.keep=1", "averaging.best: 5 is more than callbacks.best.keep=1 checkpoints, which stay; give"),
        ("averaging.last=1", "averaging.last: 1 is no average; give 0 for none, or at least 2"),
        ("averaging.lst=3", "averaging.lst: Averaging has no parameter 'lst'; did you mean 'last'?"),
        ("callbacks=[early_stopping] data=text_files", "callbacks.early_stopping."),
    ],
    ids=lambda value: value.replace("/", ":") if "=" in value and " " not in value else None,
)
def test_the_complaint_names_the_key_and_what_would_have_been_right(overrides: str, message: str) -> None:
    said = complaint(*overrides.split())
    assert re.match(message, said) if message.startswith(".*") else said.startswith(message), said
    assert "\n" not in said
    assert "Error in call to target" not in said, "Hydra's words"


def test_the_greatest_length_that_learned_positions_cover_passes() -> None:
    choice = ["model/positions=learned", "model.positions.max_positions=65", "cleaning.max_len=64"]
    build.check(build.plain(compose(choice)))


@pytest.mark.parametrize(
    "key", [f"{place}.{key}" for place, keys in RUNTIME.items() for key in sorted(keys) if "*" not in place]
)
def test_what_the_program_computes_cannot_be_set(key: str) -> None:
    said = complaint(f"{key}=3")
    assert said.startswith((f"{key}: is not a setting; the program computes it from the rest", f"{key}: "))
    if "has no parameter" not in said:  # a positions kind without heads has no `head_dim` at all
        assert said == f"{key}: is not a setting; the program computes it from the rest"


def test_a_logger_does_not_choose_where_it_writes() -> None:
    assert complaint("logger.tensorboard.save_dir=x").startswith("logger.tensorboard.save_dir: is not a setting")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("model:\n  nheads: 3\n", HEADS),
        (
            "trainer:\n  max_stps: 4\n",
            "trainer.max_stps: TrainerRecipe has no parameter 'max_stps'; did you mean 'max_steps'?",
        ),
        ("model:\n  d_model: abc\n", "model.d_model: 'abc' is not a whole number"),
        ("model:\n  pad_id: 3\n", "model.pad_id: is not a setting"),
        (
            "callbacks:\n  progres:\n    seconds: 1\n",
            "callbacks.progres: there is no such callback; did you mean 'progress'?",
        ),
        ("sed: 3\n", ".*experiment/mine.*sed.*did you mean 'seed'"),
        ("modle:\n  num_heads: 4\n", ".*experiment/mine.*modle.*did you mean 'model'"),
        ("seed: abc\n", ".*experiment/mine.*'abc'.*Integer"),
        (
            "defaults:\n  - override /model: bas\n",
            ".*Could not find 'model/bas' Available options in 'model': base big",
        ),
        ("defaults:\n  - override /modle: base\n", ".*experiment/mine.*modle"),
        ("model: [1\n", ".*experiment/mine.*line 4"),
        ("name: ${oc.env:X,~/a}\n", ".*token recognition error at: '~'"),
    ],
    ids=lambda value: value.strip().splitlines()[-1].strip(),
)
def test_the_same_mistakes_in_an_experiment_file(experiment: Any, content: str, message: str) -> None:
    said = experiment(content)
    assert re.match(message, said) if message.startswith(".*") else said.startswith(message), said
    assert "\n" not in said


def test_the_command_says_one_sentence_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """An experiment file outside `conf/`, as a user would keep it."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\nmodel:\n  nheads: 3\n")
    work = tmp_path / "work"
    work.mkdir()
    command = [
        sys.executable,
        str(CONF.parent / "train.py"),
        f"hydra.searchpath=[file://{tmp_path}]",
        "experiment=mine",
    ]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == (f"error: {HEADS}\n", 2)
    assert not [path for path in work.rglob("*") if path.is_file() and path.name != "train.log"]
