"""What the training benchmarks train on: the settings of `train.py` for an architecture, and its batches."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rivals import ARCHITECTURES, SMOOTHING

TRAIN = Path(__file__).parents[1] / "train.py"


def text_files(folder: Path, source: str | None, target: str | None, vocab_size: int) -> list[str]:
    """The overrides that train on these files, or on Multi30k; written into `folder`, a few for validation."""
    from crosslight.build import build_corpus, plain
    from crosslight.config.compose import compose
    from crosslight.data.lines import read_lines, write_lines

    sides: dict[str, list[str]] = {"source": [], "target": []}
    if source and target:
        sides = {"source": read_lines(source), "target": read_lines(target)}
    else:
        for chunk in build_corpus(plain(compose(["data=multi30k_en_de"]))).training_parts()[0].pairs.chunks():
            for side, lines in sides.items():
                lines += chunk[side].to_pylist()
    overrides = ["data=text_files", f"tokenizer.vocab_size={vocab_size}", "data.leaks=ignore"]
    for side, lines in sides.items():
        write_lines(folder / f"train.{side}", lines)
        write_lines(folder / f"validation.{side}", lines[:4])
        overrides += [f"data.{split}.{side}={folder}/{split}.{side}" for split in ("train", "validation")]
    return overrides


def overrides_of(options: dict[str, Any]) -> list[str]:
    """How `train.py` trains the architecture."""
    shape = ARCHITECTURES[options["arch"]]
    return [
        *options["overrides"],
        f"model={shape.model}",
        f"model.dropout={shape.dropout}",
        f"batching.max_tokens={shape.max_tokens}",
        f"task.objective.label_smoothing={SMOOTHING}",
        f"trainer.precision={options['precision']}",
        f"trainer.max_steps={options['stretches'] * options['every']}",
        f"trainer.log_every_n_steps={options['every']}",
        "decode=greedy",  # what follows the training is not measured: make it short
        "decode.max_len_factor=0",
        "decode.max_len_extra=2",
        "averaging=none",
        f"cache={options['folder']}/cache",
    ]


def logged_rates(options: dict[str, Any]) -> list[float]:
    """Target tokens a second of each stretch of updates, as the command `train.py` logs them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tempfile.TemporaryDirectory() as name:
        arguments = [*overrides_of(options), f"hydra.run.dir={name}/run"]
        done = subprocess.run([sys.executable, str(TRAIN), *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        events = EventAccumulator(f"{name}/run/tensorboard")
        events.Reload()
        logged = events.Scalars("train/target_tokens_per_second")
    return [event.value for event in logged if event.step % options["every"] == 0]


def mean_loss(objective: Any, model: Any) -> Callable[[Any], Any]:
    """Our loss of a batch, a target token."""

    def loss(batch: Any) -> Any:
        found = objective(model, batch)
        return found.total / found.count

    return loss


def update(model: Any, optimizer: Any, loss: Callable[[], Any]) -> None:
    """A plain loop's update: forward, backward, clip, step."""
    from torch.nn.utils import clip_grad_norm_

    optimizer.zero_grad()
    loss().backward()
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def windows(options: dict[str, Any]) -> tuple[Any, Any, Iterator[Any]]:
    """The config, the tokenizers and the batches that `train.py` trains on, as its own loader makes them."""
    from crosslight.build import plain
    from crosslight.config.compose import compose
    from crosslight.data.batching import plan_epoch
    from crosslight.data.loaders import TrainingLoader
    from crosslight.preparing import prepare

    config = plain(compose(overrides_of(options)))
    prepared = prepare(config)
    data: Any = prepared.train

    def endless() -> Iterator[Any]:
        for epoch in range(1000):
            lengths, seed = (data.source_lengths, data.target_lengths), config["seed"]
            plan = plan_epoch(*lengths, config["batching"]["max_tokens"], seed=seed, epoch=epoch)
            yield from TrainingLoader(
                data,
                prepared.tokenizers,
                plan=lambda _, of_epoch=plan: of_epoch,  # type: ignore[misc]
                rank=0,
                world=1,
                virtual_ranks=1,
                accumulate=1,
                num_workers=0,
                pin_memory=False,
                epoch=epoch,
            )

    return config, prepared.tokenizers, endless()
