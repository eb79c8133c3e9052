"""What every task shares: one Lightning batch is one optimizer update over a window of micro-batches.

For each micro-batch: seed dropout by position, backward on the summed loss. Then reduce gradients and token counts over
processes, divide once, clip, step. The learning rate is a function of the update. See docs/decisions/one-update.md.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from torch import nn
from torch.optim import Optimizer

from crosslight.batches import Batch
from crosslight.losses import TokenLoss
from crosslight.optim.groups import Kind, parameter_groups
from crosslight.optim.schedules import Schedule
from crosslight.shapes import Tensor
from crosslight.tasks.randomness import seed_position
from crosslight.tasks.reduction import Reduction


class Update(NamedTuple):
    """What one update did, over all processes. Tensors stay on the device until somebody reads them."""

    number: int
    loss: Tensor
    nll: Tensor
    tokens: Tensor
    gradient_norm: Tensor
    learning_rate: float


class Task(LightningModule):
    """A model in training. Subclasses say how a micro-batch is scored (`loss_of`) and how the model is evaluated."""

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        schedule: Schedule,
        reduction: Reduction,
        clip: float | None,
        seed: int,
        no_decay: Sequence[Kind],
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.make_optimizer, self.schedule, self.reduction = optimizer, schedule, reduction
        self.clip, self.seed, self.no_decay = clip, seed, no_decay
        self.last_update: Update | None = None
        self.checkpoint_facts: dict[str, Any] = {}
        self._sharded = False

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["crosslight"] = self.checkpoint_facts  # plain data: what a checkpoint belongs to

    def loss_of(self, batch: Batch) -> TokenLoss:
        """The summed loss of one micro-batch."""
        raise NotImplementedError

    def configure_model(self) -> None:
        """Lightning's hook: under FSDP the model is spread over the processes."""
        if self.device_mesh is not None:
            from crosslight.tasks.sharding import shard

            shard(self.model, self.device_mesh["data_parallel"])
            self._sharded = True

    def on_validation_start(self) -> None:
        if self._sharded:
            from crosslight.tasks.sharding import gather_weights

            gather_weights(self.model)

    def on_validation_end(self) -> None:
        if self._sharded:
            from crosslight.tasks.sharding import spread_weights

            spread_weights(self.model)

    def configure_optimizers(self) -> Optimizer:
        optimizer = self.make_optimizer(parameter_groups(self.model, self.no_decay))
        self.peak_learning_rate: float = optimizer.defaults["lr"]
        return optimizer

    def training_step(self, window: Sequence[Batch], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        loss, nll, tokens = self.reduction(parameters, window, self._micro_step, self.trainer.strategy)
        norm = self._finish_gradients(optimizer, parameters, tokens)
        number = self.trainer.global_step + 1
        learning_rate = self.schedule(number, self.peak_learning_rate)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
        tokens = tokens.clamp(min=1)
        self.last_update = Update(number, loss / tokens, nll / tokens, tokens, norm, learning_rate)

    def _micro_step(self, batch: Batch) -> Tensor:
        seed_position(self.seed, batch.epoch, batch.index, self.device)
        loss = self.loss_of(batch)
        self.manual_backward(loss.total)
        return torch.stack([loss.total.detach().double(), loss.nll.double(), loss.count.double()])

    def _finish_gradients(self, optimizer: Any, parameters: list[nn.Parameter], tokens: Tensor) -> Tensor:
        """Divide the summed gradients by the tokens of the whole update, clip; returns the norm before clipping."""
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None:  # fp16: the losses were scaled up
            scaler.unscale_(optimizer.optimizer)
        local = [_local(p.grad) for p in parameters if p.grad is not None]
        torch._foreach_div_(local, tokens.clamp(min=1).to(local[0].dtype))
        norm: Any = nn.utils.clip_grad_norm_(parameters, self.clip if self.clip else float("inf"))
        return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def _local(tensor: Any) -> Tensor:
    """This process's part of a tensor that FSDP spreads; any other tensor as it is."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gather_objects(local: Any) -> list[Any]:
    """One object from every process, in the order of the ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return [local]
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, local)
    return parts
