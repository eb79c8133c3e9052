"""What every task shares: one Lightning batch is one optimizer update over a window of micro-batches.

For each micro-batch: seed dropout by position, backward on the summed loss. Then agree with the other processes, reduce
gradients and token counts, divide once, clip, step. The learning rate is a function of the update. See
docs/decisions/one-update.md.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule
from torch import nn
from torch.optim import Optimizer

from crosslight.batches import Batch
from crosslight.errors import RunError
from crosslight.losses import TokenLoss
from crosslight.optim.groups import Kind, parameter_groups
from crosslight.optim.schedules import Schedule
from crosslight.shapes import Tensor
from crosslight.tasks.agreement import Agreement
from crosslight.tasks.memory import is_out_of_memory
from crosslight.tasks.randomness import seed_position
from crosslight.tasks.reduction import Reduction

log = logging.getLogger(__name__)


class Update(NamedTuple):
    """What one update did, over all processes. Tensors stay on the device until somebody reads them.

    `window` is its position: the epoch, and how many windows of the epoch came before it.
    """

    number: int
    loss: Tensor
    nll: Tensor
    tokens: Tensor
    gradient_norm: Tensor
    learning_rate: float
    window: tuple[int, int]

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are numbers. Waits for the device."""
        return bool(torch.isfinite(self.loss) & torch.isfinite(self.gradient_norm))


class Task(LightningModule):
    """A model in training. Subclasses say how a micro-batch is scored (`loss_of`) and how the model is evaluated.

    `last_update` is None where the last window was left out: for want of memory (`skips_out_of_memory`, named in
    `skipped`), or because a rollback has put it into `left_out`. `rate_factor` scales the learning rate; a rollback
    lowers it, and `rollbacks` tells of it. `abandoned`: the run ends, and what is left of the validation is not looked
    at.
    """

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
        self.agreement = Agreement()
        self.skips_out_of_memory, self.abandoned = True, False
        self.last_update: Update | None = None
        self.skipped: list[dict[str, Any]] = []
        self.left_out: set[tuple[int, int]] = set()
        self.rate_factor = 1.0
        self.rollbacks: list[dict[str, Any]] = []
        self.checkpoint_facts: dict[str, Any] = {}
        self._sharded = False

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["crosslight"] = self.checkpoint_facts  # plain data: what a checkpoint belongs to
        checkpoint["left_out"] = {
            "skipped": self.skipped,
            "windows": sorted(map(list, self.left_out)),
            "rate_factor": self.rate_factor,
            "rollbacks": self.rollbacks,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """What a rollback has decided since the checkpoint was saved stays."""
        state = checkpoint["left_out"]
        self.skipped = state["skipped"]
        self.left_out |= {(epoch, index) for epoch, index in state["windows"]}
        self.rate_factor = min(self.rate_factor, state["rate_factor"])
        self.rollbacks = max(self.rollbacks, list(state.get("rollbacks", ())), key=len)

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
        self.last_update = None
        position = window[0].epoch, batch_idx
        if position in self.left_out:
            self.agreement.settle()
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        local = self._accumulate(parameters, window)
        if self.agreement.settle()["out_of_memory"]:
            local = None
            self._skip(window, batch_idx)
            return
        loss, nll, tokens = self.reduction.reduce(parameters, local)
        norm = self._finish_gradients(optimizer, parameters, tokens)
        number = self.trainer.global_step + 1
        learning_rate = self.rate_factor * self.schedule(number, self.peak_learning_rate)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        optimizer.step()
        tokens = tokens.clamp(min=1)
        self.last_update = Update(number, loss / tokens, nll / tokens, tokens, norm, learning_rate, position)

    def _accumulate(self, parameters: list[nn.Parameter], window: Sequence[Batch]) -> Any:
        """This process's gradients; None, and a wish to leave the update out, if memory does not suffice."""
        try:
            return self.reduction.accumulate(parameters, window, self._micro_step, self.trainer.strategy)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if not (self.skips_out_of_memory and self.reduction.survives):
                raise RunError(_no_memory(window, error)) from error
        self.agreement.ask("out_of_memory")
        return None

    def _skip(self, window: Sequence[Batch], number: int) -> None:
        """Leave an update out, on every process together, and name its sentences."""
        for parameter in self.parameters():
            parameter.grad = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        ids = [batch.sentence_ids for batch in window]
        sentences = [i for part in gather_objects(ids) for batch in part for i in batch]
        self.skipped.append({"epoch": window[0].epoch, "window": number, "sentences": sentences})
        log.warning(
            "epoch %d: an update of %d sentences did not fit into memory and was left out (%d so far): %s; "
            "a smaller batching.max_tokens avoids this",
            window[0].epoch,
            len(sentences),
            len(self.skipped),
            named(sentences),
        )

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


def _no_memory(window: Sequence[Batch], error: Exception) -> str:
    tokens = max(batch.source.numel() + batch.target_in.numel() for batch in window)
    sentences = [i for batch in window for i in batch.sentence_ids]
    return (
        f"a batch of {tokens} tokens did not fit into memory ({str(error).partition(chr(10))[0]}); its sentences are "
        f"{named(sentences)}; lower batching.max_tokens and raise trainer.accumulate, or give trainer.on_oom=skip"
    )


def named(sentences: Sequence[int], most: int = 20) -> str:
    """The rows of the first sentences, as text."""
    rest = f" and {len(sentences) - most} more" if len(sentences) > most else ""
    return f"rows {', '.join(map(str, sentences[:most]))}{rest} of the training data"


def gather_objects(local: Any) -> list[Any]:
    """One object from every process, in the order of the ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return [local]
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, local)
    return parts
