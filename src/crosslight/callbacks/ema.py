"""A running mean of the weights over the updates (Polyak and Juditsky 1992), a candidate for the final weights."""

from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from crosslight.errors import ConfigError
from crosslight.shapes import Tensor
from crosslight.tasks.base import Task


class EMA(Callback):
    """`mean += (1 - d) * (weights - mean)` every `every_n_updates` updates, where `d` rises to `decay`.

    The n-th step takes `d = min(decay, (1 + n) / (10 + n))`, so the random start is soon forgotten. The training itself
    and its validations never see the mean. See docs/decisions/averages.md.
    """

    def __init__(self, *, decay: float, every_n_updates: int) -> None:
        if not 0 <= decay < 1:
            raise ConfigError(f"callbacks.ema.decay: {decay} is not from 0 to below 1, such as 0.999")
        if every_n_updates < 1:
            raise ConfigError(f"callbacks.ema.every_n_updates: {every_n_updates} is less than 1")
        self.decay, self.every_n_updates = decay, every_n_updates
        self._mean: dict[str, Tensor] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin with the weights as they are, or with the saved mean; FSDP spreads it like the weights."""
        saved = self._mean
        self._mean = {name: p.detach().clone() for name, p in _parameters(pl_module).items()}
        for name, tensor in saved.items():
            mean = self._mean[name]
            if isinstance(mean, DTensor):
                mean.copy_(distribute_tensor(tensor.to(mean.device), mean.device_mesh, mean.placements))
            else:
                mean.copy_(tensor)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(pl_module, Task)
        update = pl_module.last_update  # None: the window was skipped
        if update is None or update.number % self.every_n_updates:
            return
        step = update.number // self.every_n_updates
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            mean = [_local(tensor) for tensor in self._mean.values()]
            torch._foreach_lerp_(mean, [_local(p) for p in _parameters(pl_module).values()], 1 - decay)

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """The mean under the names of `model.state_dict()`, whole on every process; shared weights stay shared."""
        mean = self.state_dict()["mean"]
        means = {id(p): mean[name].cpu() for name, p in model.named_parameters()}
        state = model.state_dict(keep_vars=True)
        return {name: means[id(t)] if id(t) in means else t.detach().cpu().clone() for name, t in state.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"mean": {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in self._mean.items()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._mean = dict(state_dict["mean"])


def _parameters(task: LightningModule) -> Mapping[str, Tensor]:
    """The model's parameters, each once whatever shares it."""
    model: Any = task.model
    return dict(model.named_parameters())


def _local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor that FSDP spreads; any other tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
