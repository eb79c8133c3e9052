"""The signature check against constructors made for it: what fits, what does not, and in which words."""

from pathlib import Path
from typing import Any, Literal

import pytest
from torch import Tensor

from crosslight.config.check import RUNTIME, check_config, fits, nearest
from crosslight.errors import ConfigError

HERE = __name__


class Point:
    """A target with one parameter of each kind."""

    def __init__(self, x: int, *, scale: float = 1.0, mode: Literal["up", "down"] = "up", tag: str | None = None):
        self.x = x


class Open(Point):
    """A target that takes any further key."""

    def __init__(self, x: int, **more: Any):
        super().__init__(x)


def node(target: str = "Point", **keys: Any) -> dict[str, Any]:
    return {"_target_": f"{HERE}.{target}", **keys}


@pytest.mark.parametrize(
    "config",
    [
        {"part": node(x=3, scale=2, mode="down", tag=None)},
        {"part": node("Open", x=3, anything=[1, 2])},
        {"part": node(_partial_=True, scale=0.5)},
        {"part": node(x=3, _convert_="all"), "note": "without a target, anything goes", "list": [node(x=1)]},
    ],
)
def test_what_fits_its_signature_passes(config: dict[str, Any]) -> None:
    check_config(config)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"part": node(x=3, mod="up")}, "part.mod: Point has no parameter 'mod'; did you mean 'mode'?"),
        ({"part": node(x=3, q=1)}, "part.q: Point has no parameter 'q'; it has mode, scale, tag, x"),
        ({"part": node(scale=2.0)}, "part.x: missing; Point needs it"),
        ({"part": node(x="???")}, "part.x: a value is needed; give part.x=… on the command line"),
        ({"part": node(x=2.5)}, "part.x: 2.5 is not a whole number"),
        ({"part": node(x=True)}, "part.x: True is not a whole number"),
        ({"part": node(x=1, scale=True)}, "part.scale: True is not a number"),
        ({"part": node(x=1, scale="1e-3")}, "part.scale: '1e-3' is not a number"),
        ({"part": node(x=1, mode="left")}, "part.mode: 'left' is not one of 'up', 'down'"),
        ({"part": node(x=1, tag=3)}, "part.tag: 3 is not text or null"),
        ({"deep": {"list": [1, node(x=1), node(x="a")]}}, "deep.list[2].x: 'a' is not a whole number"),
        ({"part": node("Poin", x=1)}, f"part._target_: '{HERE}.Poin' cannot be imported"),
        ({"part": {"_target_": "nowhere.Point"}}, "part._target_: 'nowhere.Point' cannot be imported"),
        ({"part": {"_target_": "Point"}}, "part._target_: 'Point' cannot be imported"),
    ],
)
def test_what_does_not_fit_is_named_with_the_nearest_right_thing(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_config(config)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("value", "annotation", "right"),
    [
        (3, float, True),
        (3.0, int, False),
        (None, int, False),
        (None, int | None, True),
        (False, bool, True),
        (0, bool, False),
        ("x", str, True),
        ({"a": "b"}, dict[str, str], True),
        ({"a": 1}, dict[str, str], False),
        (["a"], dict[str, str], False),
        ([1, 2], list[int], True),
        ([1, "b"], list[int], False),
        ("auto", int | Literal["auto"], True),
        ("all", int | Literal["auto"], False),
        ({"_target_": "a.b"}, Point, True),
        (None, Point, False),
        # what torch's optimizers say of `lr` and `betas`
        (0.1, float | Tensor, True),
        ("fast", float | Tensor, False),
        ([0.9, 0.98], tuple[float | Tensor, float | Tensor], True),
        ([0.9], tuple[float | Tensor, float | Tensor], False),
        (3, tuple[float | Tensor, float | Tensor], False),
        ("rotary", Point, False),
        ("a/b", str | Path, True),
        ("anything", Any, True),
    ],
)
def test_a_value_is_held_against_its_annotation(value: Any, annotation: Any, right: bool) -> None:
    assert fits(value, annotation) is right


def test_the_nearest_name_is_found_also_where_a_prefix_is_missing() -> None:
    assert nearest("heads", ["d_model", "num_heads"]) == "; did you mean 'num_heads'?"
    assert nearest("zz", ["b", "a"]) == "; it has a, b"
    assert nearest("zz", []) == "; it has none"


def test_a_value_that_the_program_computes_cannot_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RUNTIME, "part", {"x"})
    monkeypatch.setitem(RUNTIME, "many.*", {"x"})
    check_config({"part": node(), "many": {"one": node()}})
    for path, config in (("part", {"part": node(x=1)}), ("many.one", {"many": {"one": node(x=1)}})):
        with pytest.raises(ConfigError, match=rf"^{path}\.x: is not a setting; the program computes it from the rest$"):
            check_config(config)


def test_a_partial_node_in_a_known_place_still_needs_what_the_program_does_not_give() -> None:
    learned = {"_target_": "crosslight.nn.positions.LearnedPositions", "_partial_": True}
    check_config({"model": {"positions": {**learned, "max_positions": 9}}})
    with pytest.raises(ConfigError, match=r"^model\.positions\.max_positions: missing; LearnedPositions needs it"):
        check_config({"model": {"positions": learned}})


@pytest.mark.parametrize(
    "part",
    [
        node(x=1),
        {"_target_": "os.system", "command": "true"},
        {"_target_": "crosslightly.evil.Model"},
        {"_target_": ["os.system"]},
        # trusted packages hold functions that run what they are given
        {"_target_": "torch.load", "f": "evil.pt", "weights_only": False},
        {"_target_": "torch.hub.load", "repo_or_dir": "who/ever", "model": "evil"},
        {"_target_": "crosslight.build.instantiate", "config": {}},
        # an interpolation could make a node after the check
        {"_target_": "crosslight.callbacks.best.Best", "monitor": "${oc.create:{_target_:os.abort}}", "mode": "max"},
    ],
    ids=lambda part: str(part["_target_"]),
)
def test_the_config_of_a_foreign_run_folder_can_name_only_trusted_classes(part: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^decode\.\w+: .* is refused"):
        check_config({"decode": part}, trusted_only=True)


def test_a_refused_name_is_not_even_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_module.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\nclass Model: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = {"model": {"_target_": "evil_module.Model"}}
    with pytest.raises(ConfigError, match=r"may name only .*crosslight"):
        check_config(config, trusted_only=True)
    assert not (tmp_path / "marker").exists()
    check_config(config)
    assert (tmp_path / "marker").exists(), "the user's own config may"
