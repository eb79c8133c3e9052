"""The rate in a real trainer: a function of the updates, whatever an epoch or an update is made of (case F06)."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from texts import numbers
from torch import nn

from crosslight import build
from crosslight.batches import Batch
from crosslight.callbacks.stopping import StopAt
from crosslight.config.compose import compose
from crosslight.data.batching import Batching
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import encode_pairs
from crosslight.data.module import TranslationData
from crosslight.losses import TokenLoss
from crosslight.optim.schedules import Noam
from crosslight.runs.folder import RunFolder
from crosslight.tasks.base import Task
from crosslight.tasks.reduction import OrderedReduction


class Counting(Task):
    """One weight, pulled at by every token; nothing is validated."""

    def loss_of(self, batch: Batch) -> TokenLoss:
        total = self.model.weight.sum() * batch.source.numel()
        return TokenLoss(total, total.detach(), torch.tensor(batch.target_out.numel()))

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass


class Rates(Callback):
    """The rate in the optimizer after each batch."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
        self.seen.append(trainer.optimizers[0].param_groups[0]["lr"])


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_warm_up_counts_updates_and_neither_epochs_nor_micro_batches(tmp_path: Path, accumulate: int) -> None:
    """Epochs of five updates; the warm-up of ten ends with the second epoch."""
    tokenizers = numbers(5)
    pairs = encode_pairs(Pairs("toy", ["1 2"] * 5 * accumulate, ["3 4"] * 5 * accumulate), tokenizers)
    batching = Batching(max_tokens=3, eval_max_tokens=99, num_workers=0, shuffle_buffer=None)
    data = TranslationData(
        train=pairs,
        validation=pairs,
        tests={},
        tokenizers=tokenizers,
        batching=batching,
        shares=None,
        resampled=None,
        seed=1,
        virtual_ranks=1,
        accumulate=accumulate,
    )
    overrides = ["trainer=cpu", f"trainer.accumulate={accumulate}"]
    recipe = build.build_trainer_recipe(build.plain(compose(overrides)))
    noam = Noam(d_model=512, warmup_steps=10, factor=1.0)
    optimizer = partial(torch.optim.SGD, lr=0.1)
    reduction = OrderedReduction(accumulate)
    parts = {"optimizer": optimizer, "schedule": noam, "reduction": reduction}
    task = Counting(nn.Linear(1, 1), **parts, clip=None, no_decay=[], seed=1)
    rates, stop = Rates(), StopAt(max_steps=20, max_epochs=None, max_time=None)
    trainer = recipe.build(RunFolder(tmp_path), [stop, rates], [])
    trainer.fit(task, data)
    assert (trainer.current_epoch, len(rates.seen)) == (4, 20)
    assert rates.seen == [noam(update, 0.1) for update in range(1, 21)]
    assert max(rates.seen) == rates.seen[9]
