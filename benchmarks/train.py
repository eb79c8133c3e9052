"""Training speed: `train.py` as users run it, against others on the same batches and loss.

    python benchmarks/train.py --arch tiny --rival huggingface

Data are English-German pairs: files (`--source a.en --target a.de`), or Multi30k from the hub. Our side is the
command `train.py` with its logger and callbacks; what counts are the rates that it logs itself. A rival takes the
batches of our loader in a plain loop. Padding is not counted. Rates are medians over stretches of `--every` updates,
the first of which is left out, then over rounds. `--rival bare` is our model without Lightning; `none` measures us
alone.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Watch, gemm_peak, interleaved, medians, report, tell
from rivals import ARCHITECTURES, RIVALS, SMOOTHING

TRAIN = Path(__file__).parents[1] / "train.py"
UPDATES = {"tiny": (5, 10), "base": (3, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=ARCHITECTURES, default="tiny")
    parser.add_argument("--rival", nargs="+", choices=[*RIVALS, "bare", "none"], default=["huggingface"])
    parser.add_argument("--precision", nargs="+", choices=["32", "bf16"], default=["32"])
    parser.add_argument("--attention", default="eager", help="of Hugging Face: eager or sdpa")
    parser.add_argument("--source")
    parser.add_argument("--target")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stretches", type=int, help="how many are measured, the first of which is left out")
    parser.add_argument("--every", type=int, help="updates a stretch")
    parser.add_argument("--output", type=Path, help="where the JSON and the picture go, without suffix")
    arguments = parser.parse_args()
    stretches, every = UPDATES[arguments.arch]
    settings = {
        "arch": arguments.arch,
        "stretches": arguments.stretches or stretches,
        "every": arguments.every or every,
        "attention": arguments.attention,
    }
    with tempfile.TemporaryDirectory() as folder:
        overrides = text_files(Path(folder), arguments.source, arguments.target, arguments.vocab_size)
        sides = {}
        for precision in arguments.precision:
            for side in ["crosslight", *(rival for rival in arguments.rival if rival != "none")]:
                options = {**settings, "precision": precision, "overrides": overrides, "folder": folder}
                sides[f"{side} {precision}"] = [__file__, "--child", side, json.dumps(options)]
        found = interleaved(sides, arguments.rounds)
    for side, results in found.items():
        peak = gemm_peak("bfloat16" if side.endswith("bf16") else "float32")
        flops = ARCHITECTURES[arguments.arch].flops(arguments.vocab_size, results[0]["source_tokens"])
        for result in results:
            result["of_peak"] = result["tokens_per_second"] * flops / peak
    stem = arguments.output or Path("outputs/benchmarks") / f"train_{arguments.arch}"
    title = f"training {arguments.arch.upper()}, target tokens a second"
    report(stem, title, found, value="tokens_per_second", unit="tokens/s", extra=["peak_mb", "of_peak", "others"])
    if "bare" in arguments.rival:
        seconds = medians(found, "seconds_per_update")
        for precision in arguments.precision:
            extra = seconds[f"crosslight {precision}"] - seconds[f"bare {precision}"]
            print(f"{precision}: Lightning, logging and callbacks cost {1000 * extra:.2f} ms an update")


def text_files(folder: Path, source: str | None, target: str | None, vocab_size: int) -> list[str]:
    """The overrides that train on these files, or on Multi30k, written into `folder`; a few pairs for validation."""
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


def overrides_of(options: dict[str, Any], tokenizer: Path | None = None) -> list[str]:
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


def facts(rates: list[float], options: dict[str, Any], tokens: int, source: int, updates: int, watch: Watch) -> Any:
    """What a child tells, from the rates of its stretches."""
    rate = statistics.median(rates[1:])
    return {
        "tokens_per_second": rate,
        "seconds_per_update": tokens / updates / rate,
        "source_tokens": source / tokens,
        "others": watch.others,
        "rates": rates,
    }


def crosslight_side(options: dict[str, Any]) -> None:
    """The command itself, and what it has logged."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tempfile.TemporaryDirectory() as name, Watch() as watch:
        arguments = [*overrides_of(options), f"hydra.run.dir={name}/run"]
        done = subprocess.run([sys.executable, str(TRAIN), *arguments], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        events = EventAccumulator(f"{name}/run/tensorboard")
        events.Reload()
        logged = events.Scalars("train/target_tokens_per_second")
    rates = [event.value for event in logged if event.step % options["every"] == 0]
    tokens, source, updates = count_tokens(options)
    tell(facts(rates, options, tokens, source, updates, watch))


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


def count_tokens(options: dict[str, Any]) -> tuple[int, int, int]:
    """Target and source tokens of the measured updates."""
    _, tokenizers, batches = windows(options)
    updates = options["stretches"] * options["every"]
    chosen = [next(batches)[0] for _ in range(updates)]
    targets, sources = ([(b.target_out, b.source)[n] for b in chosen] for n in range(2))
    pad = tokenizers.source.pad_id
    return sum(int((t != pad).sum()) for t in targets), sum(int((s != pad).sum()) for s in sources), updates


def rival_side(side: str, options: dict[str, Any]) -> None:
    """A plain loop: forward, backward, clip, step."""
    import torch

    from crosslight.build import build_model, build_objective, make

    config, tokenizers, batches = windows(options)
    torch.manual_seed(1)
    pad = tokenizers.source.pad_id
    if side == "bare":
        model = build_model(config, tokenizers).train()
        objective = build_objective(config, pad_id=pad)

        def loss(batch: Any) -> torch.Tensor:
            found = objective(model, batch)
            return found.total / found.count

    else:
        shape = ARCHITECTURES[options["arch"]]
        model, loss = RIVALS[side](
            shape, tokenizers.target.vocab_size, pad, tokenizers.target.bos_id, options["attention"]
        )
    optimizer = make(config["optimizer"])(model.parameters())
    half = options["precision"] == "bf16"
    rates, tokens, source = [], 0, 0
    with Watch() as watch:
        for _ in range(options["stretches"]):
            seen, start = 0, time.perf_counter()
            for (batch,) in (next(batches) for _ in range(options["every"])):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
                    value = loss(batch)
                value.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                seen += int((batch.target_out != pad).sum())
                source += int((batch.source != pad).sum())
            rates.append(seen / (time.perf_counter() - start))
            tokens += seen
    tell(facts(rates, options, tokens, source, options["stretches"] * options["every"], watch))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        side, options = sys.argv[2], json.loads(sys.argv[3])
        crosslight_side(options) if side == "crosslight" else rival_side(side, options)
    else:
        main()
