"""How the cost of an update grows with tokens, length, vocabulary, width and processes, beside what theory says.

    python benchmarks/growth.py [--source a.en --target a.de] [--output docs/images/growth]

A step is forward and backward pass, clipping and Adam on random ids, without padding. The theoretical line is the
operations of its matrix products, those of attention included, at the speed of a product of 2048 x 2048 matrices,
measured beside each step: the median. Processes train the 4+4 layer model through `train.py`; their line is the
speed of one.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import QUIET, Watch, gemm_peak
from workload import logged_rates, mean_loss, text_files, update

from crosslight.build import build_objective, make, plain
from crosslight.config.compose import compose


@dataclass(frozen=True)
class Step:
    """An update of `tokens` tokens a side in rows of `length`, with a model of 4 + 4 layers, d_ff = 2 d_model."""

    tokens: int = 4096
    length: int = 16
    vocab: int = 8000
    d_model: int = 128

    @property
    def operations(self) -> float:
        """Of forward and backward pass: 6 a weight and token, 12 d_model a pair of query and key."""
        layers, square = 4, self.d_model**2
        weights = layers * (8 + 12) * square + self.d_model * self.vocab  # attention 4 and 8, feed-forward 4 and 4
        pairs = layers * 3 * self.length
        return self.tokens * (6 * weights + 12 * self.d_model * pairs)

    def seconds(self, repeats: int = 5) -> list[float]:
        """How long it takes, several times."""
        torch.manual_seed(1)
        config = plain(compose(["model=small", f"model.d_model={self.d_model}", f"model.d_ff={2 * self.d_model}"]))
        model = make(config["model"], source_vocab_size=self.vocab, target_vocab_size=self.vocab, pad_id=0).train()
        loss = mean_loss(build_objective(config, pad_id=0), model)
        optimizer = make(config["optimizer"])(model.parameters())
        times = []
        for _ in range(repeats + 2):
            batch = next(self._batches())
            start = time.perf_counter()
            update(model, optimizer, partial(loss, batch))
            times.append(time.perf_counter() - start)
        return times[2:]

    def _batches(self) -> Iterator[Any]:
        from crosslight.batches import Batch

        while True:
            source, target = (torch.randint(4, self.vocab, (self.tokens // self.length, self.length)) for _ in range(2))
            yield Batch(source, target, target, tuple(range(len(source))))


CURVES: dict[str, tuple[str, list[Step]]] = {
    "tokens": ("target tokens an update", [Step(tokens=n) for n in (512, 1024, 2048, 4096, 8192)]),
    "length": ("length, at 4,096 tokens", [Step(length=n) for n in (8, 16, 32, 64, 128, 256)]),
    "vocab": ("pieces in the vocabulary", [Step(vocab=n) for n in (1000, 2000, 4000, 8000, 16000, 32000)]),
    "d_model": ("width of the model, at 1,024 tokens", [Step(tokens=1024, d_model=n) for n in (64, 128, 256, 512)]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source")
    parser.add_argument("--target")
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks/growth"))
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {}
    for name, (_, steps) in CURVES.items():
        found[name] = [measured(name, step) for step in steps]
    with tempfile.TemporaryDirectory() as folder:
        overrides = text_files(Path(folder), arguments.source, arguments.target, 8000)
        found["processes"] = [processes(count, overrides, folder) for count in (1, 2)]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found, arguments.output.with_suffix(".png"))
    print(f"written: {arguments.output}.json, {arguments.output}.png")


def measured(name: str, step: Step) -> dict[str, float]:
    """One point of a curve: the value on its axis, seconds measured, and of theory."""
    for _ in range(3):
        with Watch() as watch:
            peak, times = gemm_peak(), step.seconds()
        if (watch.others or 0.0) <= QUIET:
            break
    point = {
        "value": getattr(step, name),
        "seconds": statistics.median(times),
        "least": min(times),
        "most": max(times),
        "operations": step.operations,
        "peak": peak,
        "others": watch.others or 0.0,
    }
    of_peak = 100 * point["operations"] / point["seconds"] / peak
    print(f"{name} {point['value']:6}: {1000 * point['seconds']:8.1f} ms, {of_peak:3.0f} % of peak", flush=True)
    return point


def processes(count: int, overrides: list[str], folder: str) -> dict[str, float]:
    """Tokens a second where two micro-batches of 4,096 tokens make an update, on one process or on two."""
    trainer = "ddp_cpu" if count == 2 else "cpu"
    more = [f"trainer={trainer}", "trainer.virtual_ranks=2", f"trainer.threads={3 - count}"]
    options = {"overrides": overrides + more, "folder": folder, "precision": "32", "arch": "tiny"}
    rates = logged_rates({**options, "stretches": 5, "every": 5})
    print(f"processes {count}: {statistics.median(rates[1:]):,.0f} tokens/s", flush=True)
    return {"value": count, "rate": statistics.median(rates[1:]), "least": min(rates[1:]), "most": max(rates[1:])}


def draw(found: dict[str, list[dict[str, float]]], file: Path) -> None:
    """A panel a curve: measured points with their spread, and the theoretical line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 3.2), layout="constrained")
    *panels, last = figure.subplots(1, len(CURVES) + 1)
    peak = statistics.median(point["peak"] for name in CURVES for point in found[name])
    for panel, (name, (label, _)) in zip(panels, CURVES.items(), strict=True):
        points = found[name]
        x, seconds = ([point[key] for point in points] for key in ("value", "seconds"))
        spread = [[p["seconds"] - p["least"] for p in points], [p["most"] - p["seconds"] for p in points]]
        panel.errorbar(x, seconds, yerr=spread, marker="o", capsize=3, label="measured")
        panel.plot(x, [point["operations"] / peak for point in points], "--", color="gray", label="operations at peak")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xlabel(label)
    panels[0].set_ylabel("seconds an update")
    panels[0].legend()
    rates = [point["rate"] for point in found["processes"]]
    last.bar([1, 2], rates, width=0.6)
    last.axhline(rates[0], linestyle="--", color="gray")
    last.set_xticks([1, 2], ["1 process,\n2 threads", "2 processes,\n1 thread each"])
    last.set_ylabel("target tokens a second")
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
