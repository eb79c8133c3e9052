"""The mean of checkpoints: every weight once, in float32, whatever is shared (cases G07, G09)."""

import re
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from crosslight.errors import ConfigError, RunError
from crosslight.runs import averages
from crosslight.runs.averages import Averaging, average, chosen
from crosslight.runs.checkpoints import load_checkpoint, model_weights, save_checkpoint
from crosslight.runs.folder import RunFolder

FACTS: dict[str, Any] = {"tokenizer_sha256": "t", "config": {"model": {"d_model": 4, "dropout": 0.1}}}


def saved(folder: Path, update: int, weights: dict[str, Any], facts: dict[str, Any] = FACTS) -> Path:
    """A checkpoint of those weights."""
    path = RunFolder(folder).at_update(update)
    save_checkpoint({"state_dict": {f"model.{k}": v for k, v in weights.items()}, "crosslight": facts}, path)
    return path


class Tied(nn.Module):
    """Three names for one table, and another weight."""

    def __init__(self, table: float, other: float) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(300, 40), nn.Embedding(300, 40)
        self.output = nn.Linear(40, 300, bias=False)
        self.source.weight = self.target.weight = self.output.weight
        self.other = nn.Parameter(torch.full((3,), other))
        nn.init.constant_(self.output.weight, table)


def test_tied_tables_are_averaged_once_and_stay_tied(tmp_path: Path) -> None:
    paths = [
        saved(tmp_path, 1, Tied(1.0, 0.0).state_dict()),
        saved(tmp_path, 2, Tied(3.0, 1.0).state_dict()),
    ]
    save_checkpoint(average(paths), tmp_path / "average.ckpt")
    assert (tmp_path / "average.ckpt").stat().st_size == pytest.approx(paths[0].stat().st_size, rel=0.02)
    mean = model_weights(load_checkpoint(tmp_path / "average.ckpt"))
    assert {name: tensor.unique().tolist() for name, tensor in mean.items()} == {
        "other": [0.5],
        **{name: [2.0] for name in ("source.weight", "target.weight", "output.weight")},
    }
    model = Tied(9.0, 9.0)
    model.load_state_dict(mean)
    (model.output(model.source(torch.tensor([1]))).sum() + model.other.sum()).backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert model.source.weight is model.target.weight is model.output.weight
    assert not torch.equal(model.source.weight, mean["source.weight"])


def test_the_mean_of_five_is_that_of_float64(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(50, generator=generator) for _ in range(5)]
    mean = model_weights(average([saved(tmp_path, i, {"w": v}) for i, v in enumerate(values)]))["w"]
    torch.testing.assert_close(mean.double(), torch.stack(values).double().mean(dim=0), rtol=0, atol=3e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_added_in_float32_and_rounded_once(tmp_path: Path, dtype: torch.dtype) -> None:
    values = [torch.tensor([2048.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0])]
    paths = [saved(tmp_path, i, {"w": v.to(dtype)}) for i, v in enumerate(values)]
    mean = model_weights(average(paths))["w"]
    assert mean.dtype == dtype
    assert torch.equal(mean, torch.tensor([2051.0 / 4, 1.0]).to(dtype))


def test_whole_numbers_come_from_the_newest_update_in_any_order_of_files(tmp_path: Path) -> None:
    paths = [saved(tmp_path, n, {"w": torch.tensor(float(n)), "steps": torch.tensor([n])}) for n in (10, 9)]
    for order in (paths, paths[::-1]):
        mean = average(order)
        assert model_weights(mean) == {"w": torch.tensor(9.5), "steps": torch.tensor([10])}
        assert mean["averaged"] == [9, 10]


def test_one_file_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Content(dict):  # type: ignore[type-arg]
        """A dictionary that can be seen to go."""

    alive: list[Any] = []

    def load(path: Path) -> Content:
        assert [one for one in alive if one() is not None] == []
        content = Content(load_checkpoint(path))
        alive.extend([weakref.ref(content), *map(weakref.ref, content["extra"])])
        return content

    monkeypatch.setattr(averages, "load_checkpoint", load)
    paths = [RunFolder(tmp_path).at_update(n) for n in range(4)]
    for path in paths:
        weights = {"model.w": torch.zeros(2)}
        save_checkpoint({"state_dict": weights, "crosslight": FACTS, "extra": [torch.ones(5)]}, path)
    average(paths)
    assert len(alive) == 8


@pytest.mark.parametrize(
    ("weights", "facts", "message"),
    [
        ({"w": torch.zeros(2)}, {**FACTS, "tokenizer_sha256": "u"}, "for it has another tokenizer"),
        ({"w": torch.zeros(2)}, {**FACTS, "config": {"model": {"d_model": 5}}}, "for it has another model"),
        ({"w": torch.zeros(3)}, FACTS, "for it has weights of other shapes"),
        ({"v": torch.zeros(2)}, FACTS, "for it has weights of other shapes"),
        ({"w": torch.zeros(2)}, None, "not a checkpoint of a run of ours"),
    ],
)
def test_checkpoints_of_other_models_are_refused(tmp_path: Path, weights: Any, facts: Any, message: str) -> None:
    paths = [saved(tmp_path, 1, {"w": torch.zeros(2)}), saved(tmp_path, 2, weights, facts)]
    with pytest.raises(RunError, match=rf"^{re.escape(str(paths[1]))}: .*{message}$"):
        average(paths)


def test_another_dropout_is_no_other_model(tmp_path: Path) -> None:
    other = {**FACTS, "config": {"model": {"d_model": 4, "dropout": 0.3}}}
    average([saved(tmp_path, 1, {"w": torch.zeros(2)}), saved(tmp_path, 2, {"w": torch.zeros(2)}, other)])


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Checkpoints after 9, 10 and 11; of the best, which were 10, 3 and 9 in this order, one more lies about."""
    folder = RunFolder(tmp_path)
    for update in (9, 10, 11):
        save_checkpoint({"callbacks": {"Best": {"values": {10: 5.0, 3: 4.0, 9: 1.0}}}}, folder.at_update(update))
    for update in (10, 3, 9, 12):
        save_checkpoint({}, folder.kept_at(update))
    return folder


@pytest.mark.parametrize(
    ("wish", "names"),
    [
        ({"last": 2}, ["update=10.ckpt", "update=11.ckpt"]),
        ({"last": 3}, ["update=9.ckpt", "update=10.ckpt", "update=11.ckpt"]),
        ({"best": 2}, ["best/update=10.ckpt", "best/update=3.ckpt"]),
        ({"updates": [3, 11]}, ["best/update=3.ckpt", "update=11.ckpt"]),
    ],
)
def test_the_newest_the_best_or_given_updates_are_found(folder: RunFolder, wish: Any, names: Sequence[str]) -> None:
    assert [str(path.relative_to(folder.checkpoints)) for path in chosen(folder, **wish)] == list(names)


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        (
            {"last": 5},
            "last=5: .* has not as many checkpoints; there are update=9.ckpt, update=10.ckpt, update=11.ckpt",
        ),
        ({"best": 4}, "best=4: .*; there are best/update=3.ckpt, best/update=9.ckpt, best/update=10.ckpt"),
        ({"updates": [10, 20]}, r"updates=\[10, 20\]: .* there are best/update=3.ckpt, update=9.ckpt, update=10.ckpt"),
    ],
)
def test_fewer_checkpoints_than_asked_for_are_listed_in_order(folder: RunFolder, wish: Any, message: str) -> None:
    with pytest.raises(RunError, match=f"^{message}"):
        chosen(folder, **wish)


def test_a_run_without_checkpoints_has_none(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there are none$"):
        chosen(RunFolder(tmp_path), best=2)


@pytest.mark.parametrize(("last", "best", "name"), [(1, 5, "last"), (5, 1, "best"), (-2, 5, "last")])
def test_a_single_checkpoint_is_no_average(last: int, best: int, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^averaging\.{name}: -?\d is no average; give 0 for none, or at least 2$"):
        Averaging(last=last, best=best)
