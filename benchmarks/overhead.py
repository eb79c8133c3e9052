"""What Lightning, logging and callbacks cost an update, measured inside a training.

    python benchmarks/overhead.py [--arch copy|tiny] [--source a.en --target a.de]

The training is `train.py`'s own. A callback that comes last times every stretch of updates, from one end of a batch to
another, and after each runs as many updates in a bare loop, on the same batches and a copy of the model: both sides in
one process, seconds apart. The medians of the stretches are compared.
"""

import argparse
import copy
import statistics
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from measuring import Watch, report
from rivals import ARCHITECTURES
from workload import mean_loss, text_files, update, windows

EVERY = {"copy": 25, "tiny": 5}


class Alternating(Callback):
    """Times stretches of the training around it, and bare ones between them."""

    def __init__(self, batches: Any, optimizer: Any, every: int) -> None:
        self.batches, self.make_optimizer, self.every = batches, optimizer, every
        self.seconds: dict[str, list[float]] = {"crosslight": [], "bare": []}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        task: Any = pl_module
        self.model = copy.deepcopy(task.model)
        self.loss = mean_loss(task.objective, self.model)
        self.optimizer = self.make_optimizer(self.model.parameters())
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step % self.every:
            return
        middle = time.perf_counter()
        for (bare,) in islice(self.batches, self.every):
            update(self.model, self.optimizer, partial(self.loss, bare))
        end = time.perf_counter()
        for side, seconds in (("crosslight", middle - self._start), ("bare", end - middle)):
            self.seconds[side].append(seconds / self.every)
        self._start = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=EVERY, default="copy")
    parser.add_argument("--source")
    parser.add_argument("--target")
    parser.add_argument("--stretches", type=int, default=16)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks/overhead"))
    arguments = parser.parse_args()

    from crosslight import app, build
    from crosslight.runs.folder import RunFolder

    with tempfile.TemporaryDirectory() as folder:
        overrides = ["data.num_validation=4", "data.num_test=4", "expect=null"]
        if arguments.arch != "copy":
            overrides = text_files(Path(folder), arguments.source, arguments.target, 8000)
        every = EVERY[arguments.arch]
        options = {"overrides": overrides, "folder": folder, "precision": "32", "arch": arguments.arch}
        config, _, batches = windows({**options, "every": every, "stretches": arguments.stretches + 1})
        config["trainer"]["log_every_n_steps"] = config["callbacks"]["progress"]["every_n_updates"] = 50
        alternating = Alternating(batches, build.make(config["optimizer"]), every)
        with_callbacks = build.build_callbacks
        build.build_callbacks = lambda *args: [*with_callbacks(*args), alternating]
        with Watch() as watch:
            app.train(config, RunFolder(Path(folder) / "run"))
    found = {
        side: [{"milliseconds": 1000 * s, "others": watch.others} for s in seconds[1:]]
        for side, seconds in alternating.seconds.items()
    }
    shape = ARCHITECTURES[arguments.arch]
    title = f"an update of {shape.max_tokens} tokens, {shape.layers}+{shape.layers} layers of {shape.d_model}"
    report(arguments.output, title, found, value="milliseconds", unit="ms", extra=["others"])
    pairs = zip(*(alternating.seconds[side][1:] for side in ("crosslight", "bare")), strict=True)
    more = statistics.median(ours - bare for ours, bare in pairs)
    share = more / statistics.median(alternating.seconds["bare"][1:])
    print(f"Lightning, logging and callbacks: {1000 * more:.2f} ms an update more, {100 * share:.1f} %")


if __name__ == "__main__":
    main()
