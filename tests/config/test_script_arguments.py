"""The `key=value` arguments of the scripts."""

import sys
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from texts import numbers

from crosslight import build, inference
from crosslight.config.arguments import script_arguments
from crosslight.config.compose import compose
from crosslight.errors import ConfigError

KNOWN = {"run": str, "checkpoint": str, "lines": int}


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Gives the dictionary for a command line."""

    def of(*arguments: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["translate.py", *arguments])
        return script_arguments("How to use it.\n", KNOWN, needed=["run"])

    return of


def test_settings_are_gathered_by_group_and_have_types(parsed: Any) -> None:
    found = parsed("run=outputs/a=b", "lines=7", "decode.beam_size=5", "+decode.mode=null", "++data.train.source=a.en")
    assert found == {
        "run": "outputs/a=b",
        "lines": 7,
        "decode": {"beam_size": 5, "mode": None},
        "data.values": {"train.source": "a.en"},
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.6", 0.6), ("1e-1", 0.1), ("1e3", 1000.0), ("true", True), ("[1,2]", [1, 2]), ("", ""), ("a.b", "a.b")],
)
def test_a_value_means_what_it_means_in_training(parsed: Any, text: str, value: object) -> None:
    found = parsed("run=x", f"decode.length_penalty={text}")["decode"]["length_penalty"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lines=3"], "run: missing; give run=…"),
        (["rn=x"], "rn=x: arguments are key=value; did you mean 'run'?"),
        (["run"], "run: arguments are key=value"),
        (["run=x", "decode.beam_size"], "decode.beam_size: arguments are key=value"),
        (["run=x", "zzzz=1"], "zzzz=1: arguments are key=value; it has checkpoint, lines, run"),
        (["run=x", "lines=many"], "lines: 'many' is not a"),
        (["run=x", "model.d_ff=3"], "model.d_ff=3: arguments are key=value"),
        (["run=x", "decode.beam_size=[1"], "decode.beam_size: '[1' "),
    ],
)
def test_a_mistake_is_named(parsed: Any, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(*arguments)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_help_prints_the_usage_and_ends_well(parsed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parsed("--help", "nonsense")
    assert not end.value.code
    assert capsys.readouterr().out == "How to use it.\n"


def test_null_takes_a_setting_of_the_data_away(parsed: Any) -> None:
    files = [f"data.{split}.{side}={split}.{side}" for split in ("train", "test") for side in ("source", "target")]
    config = build.plain(compose(["data=text_files", *files]))
    search, device = build.build_search(config), torch.device("cpu")
    run = inference.TrainedRun(config, None, numbers(5), search, device, nullcontext, None, tags={})
    with pytest.raises(ConfigError, match="this data set has no test set"):
        inference.test_sets(run, parsed("run=x", "data.test.source=null", "data.test.target=null"))
