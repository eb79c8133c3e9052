"""One process of `test_arithmetic.py`: takes a few updates in every layout, each by a trainer of its own.

`python arithmetic.py FOLDER RANK WORLD PORT` writes `FOLDER/world=WORLD.pt`: by kind of run and layout, the weights
after each update and the numbers that are logged. All layouts see the same sentences in each update.
"""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers.logger import DummyLogger
from torch import nn
from torch.utils.data import DataLoader

from crosslight import build
from crosslight.batches import Batch
from crosslight.config.compose import compose
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import EncodedPairs, encode_pairs
from crosslight.data.loaders import TrainingLoader, share_of
from crosslight.inference import load_run
from crosslight.losses import TokenLoss
from crosslight.runs.folder import RunFolder
from crosslight.runs.ranks import TORCHRUN
from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.integers import IntegerTokenizer

SETTINGS = [
    *("data=copy", "data.num_symbols=11", "trainer=cpu", "trainer.threads=1", "trainer.log_every_n_steps=1"),
    *("scheduler=constant", "scheduler.warmup_steps=0", "task.objective.label_smoothing=0.1"),
    *("callbacks=[progress,best]", "callbacks.progress.seconds=1000"),
    *("model.d_model=16", "model.d_ff=24", "model.num_heads=2", "model.dropout=0.0"),
    *("model.num_encoder_layers=1", "model.num_decoder_layers=1"),
]
SENTENCES = (12, 5)
"""Of the first update, which are cut into all micro-batches of the window, and of the second, which is one micro-batch:
the last, short window of an epoch, filled up with placeholders."""

CLIP = 0.05
"""Far below any norm in here."""

REDUCTIONS = {1: ("ordered", "fast"), 2: ("ordered", "fast", "reducer", "fsdp")}
"""By the number of processes. `reducer` is DDP's own, which `fast` takes where an update cannot be left out."""


class Layout(NamedTuple):
    """How an update is spread over processes and micro-batches, and how it is computed. Without `clip`, by no norm."""

    world: int
    accumulate: int
    reduction: str = "ordered"
    precision: str = "32"
    clip: float | None = None

    @property
    def trainer(self) -> dict[str, Any]:
        """Settings of the trainer."""
        return {
            "devices": self.world,
            "accumulate": self.accumulate,
            "precision": self.precision,
            "gradient_clip_val": self.clip,
            "strategy": "fsdp" if self.reduction == "fsdp" else "auto",
            "reduction": {"fsdp": "auto", "reducer": "fast"}.get(self.reduction, self.reduction),
            "on_oom": "stop" if self.reduction in ("fsdp", "reducer") else "skip",
        }


LAYOUTS = [
    Layout(world, accumulate, reduction, precision, clip)
    for world, reductions in REDUCTIONS.items()
    for accumulate, reduction in product((1, 2, 3), reductions)
    for precision, clip in (("32", None), ("32", CLIP), ("bf16", None))
]
WEIGHED = [
    layout for layout in LAYOUTS if layout.accumulate < 3 and layout.reduction != "fsdp" and layout.precision == "32"
]
SCHEDULED = [Layout(world, accumulate) for world in (1, 2) for accumulate in (1, 2)]


class Logged(DummyLogger):
    """Keeps the numbers that users see."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[str, list[float]] = {}

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        for name, value in metrics.items():
            self.numbers.setdefault(name, []).append(value)


class Weights(Callback):
    """Keeps the whole weights, as one vector: before training, and after each update."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def on_train_start(self, trainer: Any, *arguments: Any) -> None:
        state = trainer.strategy.lightning_module_state_dict()
        if state:  # under FSDP only rank 0 gets it
            self.seen.append(torch.cat([state[name].detach().flatten() for name in sorted(state)]))

    on_train_batch_end = on_train_start


@cache
def composed() -> dict[str, Any]:
    return build.plain(compose(SETTINGS))


@cache
def tokenizers() -> Tokenizers:
    symbols = IntegerTokenizer(11)
    return Tokenizers(symbols, symbols, kind="integers")


@cache
def sentences() -> EncodedPairs:
    """From 1 to 17 symbols a side, the short ones first: micro-batches hold very different numbers of tokens."""
    rng = np.random.default_rng(2)
    lengths = np.linspace(1, 17, sum(SENTENCES)).astype(int)
    source, target = ([" ".join(map(str, rng.integers(0, 11, n))) for n in lengths] for _ in range(2))
    return encode_pairs(Pairs("unequal", source, target), tokenizers())


def trained(
    layout: Layout, model: nn.Module, batches: Any, folder: Path, *, updates: int, warmup: int = 0
) -> dict[str, Any]:
    """The `weights` before training and after each update, and the `numbers` that are logged."""
    config = {**composed(), "trainer": {**composed()["trainer"], **layout.trainer, "max_steps": updates}}
    config["optimizer"] = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 1.0}  # Adam would hide a factor
    config["scheduler"] = {**config["scheduler"], "warmup_steps": warmup}
    if warmup:
        config["scheduler"]["_target_"] = "crosslight.optim.schedules.InverseSquareRoot"
    recipe = build.build_trainer_recipe(config)
    task = build.build_task(
        config,
        model=model,
        search=build.build_search(config),
        tokenizers=tokenizers(),
        recipe=recipe,
        test_langs={},
        load_run=load_run,
    )
    if isinstance(model, nn.Linear):
        task.loss_of = weighed(model)
    weights, logged = Weights(), Logged()
    trainer = recipe.build(RunFolder(folder), [*build.build_callbacks(config, recipe), weights], [logged])
    trainer.fit(task, batches)
    return {"weights": weights.seen, "numbers": logged.numbers}


@cache
def transformer() -> nn.Module:
    """A small model without dropout, whose masks would depend on the micro-batch."""
    torch.manual_seed(3)
    return build.build_model(composed(), tokenizers())


def translating(layout: Layout, rank: int, folder: Path) -> dict[str, Any]:
    """Two updates of the Transformer, on an epoch of two windows."""
    first, second = np.split(np.arange(sum(SENTENCES)), [SENTENCES[0]])
    micro_batches = [*np.array_split(first, layout.world * layout.accumulate), second]
    return trained(layout, deepcopy(transformer()), loader(layout, rank, micro_batches), folder, updates=2)


def loader(layout: Layout, rank: int, micro_batches: Sequence[Any]) -> TrainingLoader:
    """The real loader over these micro-batches."""
    return TrainingLoader(
        sentences(),
        tokenizers(),
        plan=lambda epoch: list(micro_batches),
        rank=rank,
        world=layout.world,
        virtual_ranks=layout.world,
        accumulate=layout.accumulate,
        num_workers=0,
        pin_memory=False,
    )


def weighing(layout: Layout, rank: int, folder: Path) -> dict[str, Any]:
    """One update of one weight: 10 tokens whose loss is 50 and 90 tokens whose loss is 180 (case F02)."""
    parts = {1: [(100, 230)], 2: [(10, 50), (90, 180)], 4: [(5, 25), (45, 90), (5, 25), (45, 90)]}
    window = [numbered(*part) for part in parts[layout.world * layout.accumulate]]
    share = share_of(rank, layout.world, layout.world, layout.accumulate)
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    batches = DataLoader([[window[place] for place in share]], batch_size=None, collate_fn=list)  # type: ignore[arg-type]
    return trained(layout, model, batches, folder, updates=1)


def numbered(tokens: int, total: int) -> Batch:
    target = torch.ones((1, tokens), dtype=torch.long)
    return Batch(torch.tensor([[total]]), target, target, (0,))


def weighed(model: nn.Linear) -> Callable[[Batch], TokenLoss]:
    """The loss of such a batch is its number times the weight."""

    def loss_of(batch: Batch) -> TokenLoss:
        total = model.weight.sum() * batch.source.sum()
        return TokenLoss(total, total.detach(), torch.tensor(batch.target_out.numel()))

    return loss_of


def scheduling(layout: Layout, rank: int, folder: Path) -> dict[str, Any]:
    """Twenty updates at a rate that rises for ten, in epochs of five windows (case F06)."""
    micro_batches = np.array_split(np.arange(sum(SENTENCES)), 17)[: 5 * layout.world * layout.accumulate]
    missing = 5 * layout.world * layout.accumulate - len(micro_batches)
    batches = loader(layout, rank, [*micro_batches, *micro_batches[:missing]])
    found = trained(layout, deepcopy(transformer()), batches, folder, updates=20, warmup=10)
    return {"numbers": found["numbers"]}


def runs(rank: int, world: int, folder: Path) -> Iterator[tuple[str, Layout, dict[str, Any]]]:
    """Everything that this number of processes is tried with."""
    for kind, layouts in ((translating, LAYOUTS), (weighing, WEIGHED), (scheduling, SCHEDULED)):
        for layout in layouts:
            if layout.world == world:
                yield kind.__name__, layout, kind(layout, rank, folder)


def main(folder: str, rank: str, world: str, port: str) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if world != "1":
        os.environ.update(zip(TORCHRUN, (rank, world, rank, world, "127.0.0.1", port), strict=True))
    results = {(name, *layout): found for name, layout, found in runs(int(rank), int(world), Path(folder))}
    if rank == "0":
        torch.save(results, Path(folder) / f"world={world}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
