"""What an update does on a GPU, tried on torch's device without data, where reading a number raises an error."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from texts import numbers
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from crosslight.batches import Batch
from crosslight.build import build_model, build_objective, plain
from crosslight.config.compose import compose


@pytest.fixture(autouse=True)
def _without_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the device."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())


class Attentions(TorchFunctionMode):
    """Notes the mask and the causality of every fused attention."""

    def __init__(self) -> None:
        self.masked: list[tuple[Any, bool]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.scaled_dot_product_attention:
            mask = args[3]
            self.masked.append((None if mask is None else tuple(mask.shape), kwargs["is_causal"]))
        return function(*args, **(kwargs or {}))


def update(overrides: list[str]) -> tuple[list[tuple[Any, bool]], torch.nn.Module]:
    """The attentions of a forward pass; a backward pass and the clipping follow it."""
    config, tokenizers = plain(compose(["model=tiny", *overrides])), numbers(50)
    with torch.device("meta"):
        model = build_model(config, tokenizers).train()
        ids = [torch.zeros(3, length, dtype=torch.long) for length in (7, 5, 5)]
    objective = build_objective(config, pad_id=tokenizers.source.pad_id)
    with Attentions() as attentions:
        loss = objective(model, Batch(*ids, sentence_ids=(0, 1, 2)))
        loss.total.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        torch._foreach_div_(gradients, loss.count.clamp(min=1).to(gradients[0].dtype))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return attentions.masked, model


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "learned"])
@pytest.mark.parametrize("objective", ["cross_entropy", "r_drop"])
def test_an_update_reads_no_number_from_the_device(positions: str, objective: str) -> None:
    dropouts = [f"model.{name}=0.1" for name in ("dropout", "attention_dropout", "activation_dropout")]
    _, model = update([f"model/positions={positions}", f"task/objective={objective}", *dropouts])
    assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())


def test_a_number_that_is_read_would_be_noticed() -> None:
    with pytest.raises(RuntimeError, match="meta"):
        float(torch.zeros(1, device="meta"))


def test_in_training_the_targets_attend_to_their_past_without_a_mask() -> None:
    masked, _ = update([])
    source = (3, 1, 1, 7)
    assert masked == [(source, False)] * 2 + [(None, True), (source, False)] * 2
