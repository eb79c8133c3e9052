"""Training speed: `train.py` as users run it, against others on the same batches and loss.

    python benchmarks/train.py --arch tiny --rival huggingface

Data are English-German pairs: files (`--source a.en --target a.de`), or Multi30k from the hub. Our side is the
command `train.py` with its logger and callbacks; what counts are the rates that it logs itself. A rival takes the
batches of our loader in a plain loop. Padding is not counted. Rates are medians over stretches of `--every` updates,
the first of which is left out, then over rounds. `--rival bare` is our model without Lightning; `none` measures us
alone. `--arch copy` has the size and the data of the copy task, where whatever is not arithmetic shows.
"""

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from measuring import Watch, gemm_peak, interleaved, medians, report, tell
from rivals import ARCHITECTURES, RIVALS
from workload import logged_rates, mean_loss, text_files, update, windows

UPDATES = {"tiny": (5, 10), "base": (3, 4), "copy": (6, 50)}


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
        overrides = ["data.num_validation=4", "data.num_test=4", "expect=null"]
        if arguments.arch != "copy":
            overrides = text_files(Path(folder), arguments.source, arguments.target, arguments.vocab_size)
        sides = {}
        for precision in arguments.precision:
            for side in ["crosslight", *(rival for rival in arguments.rival if rival != "none")]:
                options = {**settings, "precision": precision, "overrides": overrides, "folder": folder}
                sides[f"{side} {precision}"] = [__file__, "--child", side, json.dumps(options)]
        found = interleaved(sides, arguments.rounds)
    for side, results in found.items():
        peak = gemm_peak("bfloat16" if side.endswith("bf16") else "float32")
        flops = ARCHITECTURES[arguments.arch].flops(results[0]["vocab_size"], results[0]["source_tokens"])
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


def facts(rates: list[float], tokens: int, source: int, updates: int, vocab_size: int, watch: Watch) -> dict[str, Any]:
    """What a child tells, from the rates of its stretches."""
    rate = statistics.median(rates[1:])
    return {
        "tokens_per_second": rate,
        "seconds_per_update": tokens / updates / rate,
        "source_tokens": source / tokens,
        "vocab_size": vocab_size,
        "others": watch.others,
        "rates": rates,
    }


def crosslight_side(options: dict[str, Any]) -> None:
    """The command itself, and what it has logged."""
    with Watch() as watch:
        rates = logged_rates(options)
    tell(facts(rates, *count_tokens(options), watch))


def count_tokens(options: dict[str, Any]) -> tuple[int, int, int, int]:
    """Target and source tokens of the measured updates, how many there are, and the size of the vocabulary."""
    _, tokenizers, batches = windows(options)
    updates = options["stretches"] * options["every"]
    chosen = [next(batches)[0] for _ in range(updates)]
    targets, sources = ([(b.target_out, b.source)[n] for b in chosen] for n in range(2))
    pad = tokenizers.source.pad_id
    counts = (sum(int((ids != pad).sum()) for ids in side) for side in (targets, sources))
    return *counts, updates, tokenizers.target.vocab_size  # type: ignore[return-value]


def rival_side(side: str, options: dict[str, Any]) -> None:
    """A plain loop: forward, backward, clip, step."""
    import torch

    from crosslight.build import build_model, build_objective, make

    config, tokenizers, batches = windows(options)
    torch.manual_seed(1)
    pad = tokenizers.source.pad_id
    if side == "bare":
        model = build_model(config, tokenizers).train()
        loss = mean_loss(build_objective(config, pad_id=pad), model)
    else:
        shape = ARCHITECTURES[options["arch"]]
        model, loss = RIVALS[side](
            shape, tokenizers.target.vocab_size, pad, tokenizers.target.bos_id, options["attention"]
        )
    optimizer = make(config["optimizer"])(model.parameters())
    half = options["precision"] == "bf16"

    def cast(batch: Any) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
            return loss(batch)

    rates, tokens, source = [], 0, 0
    with Watch() as watch:
        for _ in range(options["stretches"]):
            seen, start = 0, time.perf_counter()
            for (batch,) in (next(batches) for _ in range(options["every"])):
                update(model, optimizer, partial(cast, batch))
                seen += int((batch.target_out != pad).sum())
                source += int((batch.source != pad).sum())
            rates.append(seen / (time.perf_counter() - start))
            tokens += seen
    updates = options["stretches"] * options["every"]
    tell(facts(rates, tokens, source, updates, tokenizers.target.vocab_size, watch))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        side, options = sys.argv[2], json.loads(sys.argv[3])
        crosslight_side(options) if side == "crosslight" else rival_side(side, options)
    else:
        main()
