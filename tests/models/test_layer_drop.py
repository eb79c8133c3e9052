"""LayerDrop: which layers run, that a skipped one is as if it were not there, and where it cannot work."""

from typing import Any

import pytest
import torch
from torch import nn

from crosslight import build as building
from crosslight.config.compose import compose
from crosslight.errors import ConfigError
from crosslight.nn.layer_drop import layers_to_run
from crosslight.tasks.randomness import seed_position

SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 3, 0, 0]])
TARGET = torch.tensor([[1, 5, 6, 7], [1, 4, 0, 0]])


def test_each_layer_is_skipped_with_the_probability_given() -> None:
    torch.manual_seed(1)
    runs = torch.tensor([layers_to_run(3, 0.2) for _ in range(4000)], dtype=torch.float)
    torch.testing.assert_close(runs.mean(dim=0), torch.full((3,), 0.8), rtol=0, atol=0.03)
    assert abs(torch.corrcoef(runs.T)[0, 1]) < 0.05


def test_without_layer_drop_nothing_is_drawn() -> None:
    before = torch.get_rng_state()
    assert layers_to_run(4, 0.0) == [True] * 4
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_skipped_layers_follow_from_the_position_on_any_device(device: str) -> None:
    def runs() -> list[bool]:
        seed_position(1, 2, 3, torch.device(device))
        return layers_to_run(40, 0.5)

    first = runs()
    torch.rand(7)
    assert runs() == first


@pytest.mark.parametrize("seed", range(5))
def test_a_skipped_layer_is_as_if_it_were_not_there_and_gets_no_gradient(build: Any, seed: int) -> None:
    model = build(layer_drop=0.5).train()
    torch.manual_seed(seed)
    kept = [layers_to_run(2, 0.5), layers_to_run(3, 0.5)]
    torch.manual_seed(seed)
    logits = model(SOURCE, TARGET)
    pruned = build(layer_drop=0.5)
    for stack, runs in zip((pruned.encoder, pruned.decoder), kept, strict=True):
        stack.layers = nn.ModuleList([layer for layer, run in zip(stack.layers, runs, strict=True) if run])
    torch.testing.assert_close(logits, pruned(SOURCE, TARGET))
    logits.sum().backward()
    for stack, runs in zip((model.encoder, model.decoder), kept, strict=True):
        for layer, run in zip(stack.layers, runs, strict=True):
            unused = all(p.grad is None or not p.grad.any() for p in layer.parameters())
            assert unused != (run and (stack is model.decoder or any(kept[1])))


def test_all_layers_run_in_evaluation(build: Any) -> None:
    assert torch.equal(build(layer_drop=0.9)(SOURCE, TARGET), build()(SOURCE, TARGET))


def config(*overrides: str) -> dict[str, Any]:
    return building.plain(compose(list(overrides)))


def test_sharded_training_refuses_it() -> None:
    with pytest.raises(ConfigError, match=r"^model\.layer_drop: processes skip different layers, but trainer=fsdp"):
        building.check(config("trainer=fsdp", "trainer.accelerator=cpu", "trainer.devices=2", "model.layer_drop=0.1"))


@pytest.mark.parametrize(("layer_drop", "looks"), [(0.0, False), (0.1, True)])
def test_the_reducer_of_ddp_looks_for_unused_parameters_only_then(layer_drop: float, looks: bool) -> None:
    overrides = ["trainer=ddp_cpu", "trainer.reduction=fast", "trainer.on_oom=stop", f"model.layer_drop={layer_drop}"]
    strategy = building.build_trainer_recipe(config(*overrides))._strategy()
    assert strategy._ddp_kwargs["find_unused_parameters"] == looks
