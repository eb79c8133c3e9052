"""Training and decoding on one GPU: rates, utilisation, memory; in two precisions, with and without torch.compile.

    python benchmarks/gpu.py                        about 8 minutes on an H200
    python benchmarks/gpu.py --device cpu --tiny    does it run?

The data are made up: as many pieces a sentence as in WMT's training data (28 in the mean, log-normal), 37,000 different
ones. Everything else is the program's own: loader, model, loss, optimizer, search. Padding is not counted. Utilisation
is of the model's own operations, against a large matrix product of the same precision, measured on the spot, and
against 989 TFLOP/s, an H100's or H200's data sheet for bf16. In decoding the weights are random, and a translation gets
as long as its source.
"""

import argparse
import contextlib
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measuring import Result, interleaved, medians, report, tell
from rivals import SMOOTHING, Architecture

SIZES = {
    "base": Architecture(6, 512, 8, 2048, 0.1, 25000, "base"),
    "big": Architecture(6, 1024, 16, 4096, 0.3, 25000, "big"),
    "tiny": Architecture(2, 128, 4, 256, 0.1, 400, "tiny"),
}
GOALS = {"base": 0.45, "big": 0.55}
"""Utilisation of the measured peak that training in bf16 should reach."""
SHEET = 989e12

DECODED_TOGETHER = 12000
"""Padded source tokens of a batch in decoding: the default of `batching.eval_max_tokens` is for small machines."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few batches: only to see it run")
    parser.add_argument("--only", nargs="+", help="of the sides, such as 'base bf16' or 'base beam'")
    parser.add_argument("--max-tokens", type=int, help="padded tokens of a batch, on either side (25,000)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks/gpu"), help="without suffix")
    arguments = parser.parse_args()
    if arguments.device == "cuda":
        check_gpu()
    training, decoding = sides(arguments)
    print(f"sides: {', '.join([*training, *decoding])}", flush=True)
    stem = arguments.output
    if training:
        found = interleaved(training, arguments.rounds)
        extra = ["of_peak", "of_sheet", "milliseconds", "memory_mb", "first_seconds"]
        title = f"training on {arguments.device}, target tokens a second"
        report(
            stem.with_name(f"{stem.name}_train"), title, found, value="tokens_per_second", unit="tokens/s", extra=extra
        )
        judge(found)
    if decoding:
        found = interleaved(decoding, arguments.rounds)
        title = f"decoding on {arguments.device}, sentences a second"
        extra = ["tokens_per_second", "memory_mb"]
        report(
            stem.with_name(f"{stem.name}_decode"), title, found, value="sentences_per_second", unit="/s", extra=extra
        )


def check_gpu() -> None:
    """End with a sentence where there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("no GPU can be used here; --device cpu --tiny shows that the program runs")


def sides(arguments: argparse.Namespace) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The children's arguments, of training and of decoding, by the name of the side."""
    sizes = ["tiny"] if arguments.tiny else ["base", "big"]
    chosen: tuple[dict[str, list[str]], dict[str, list[str]]] = ({}, {})
    plan = [
        *((0, size, how) for size in sizes for how in ("bf16", "bf16 compiled", "32")),
        *((1, sizes[0], how) for how in ("beam", "greedy")),
    ]
    for kind, size, how in plan:
        name = f"{size} {how}"
        if not arguments.only or name in arguments.only:
            tokens = arguments.max_tokens or SIZES[size].max_tokens
            options = {"size": size, "how": how, "device": arguments.device, "max_tokens": tokens}
            chosen[kind][name] = [__file__, "--child", ("train", "decode")[kind], json.dumps(options)]
    if arguments.only and not any(chosen):
        sys.exit(f"--only: none of {', '.join(f'{size} {how}' for _, size, how in plan)}")
    return chosen


def judge(found: dict[str, list[Result]]) -> None:
    """Print what was to be reached beside what was."""
    for side, share in medians(found, "of_peak").items():
        size, _, how = side.partition(" ")
        if size in GOALS and how.startswith("bf16"):
            verdict = "reached" if share >= GOALS[size] else "missed"
            print(f"goal: {side} at {GOALS[size]:.0%} of the measured peak: {verdict} ({share:.1%})")


class MadeUp:
    """Pairs of random pieces with lengths as in WMT's data, with what a loader asks of encoded pairs."""

    sentence_ids = None

    def __init__(self, pairs: int, tokenizers: Any) -> None:
        import numpy as np

        draw = np.random.default_rng(1)
        spread, mean = 0.6, 28
        source = draw.lognormal(math.log(mean) - spread**2 / 2, spread, pairs)
        target = source * draw.lognormal(0.0, 0.15, pairs)
        self.source_lengths, self.target_lengths = (side.clip(2, 200).astype(np.int32) for side in (source, target))
        end, vocab = tokenizers.target.eos_id, tokenizers.target.vocab_size

        def ids(length: int) -> Any:
            return np.append(draw.integers(4, vocab, length - 1, dtype=np.int32), np.int32(end))

        self.source = [ids(length) for length in self.source_lengths]
        self.target = [ids(length) for length in self.target_lengths]
        self.target_text = [""] * pairs


def prepared(options: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Config, tokenizers, model on its device, and data."""
    import torch

    from crosslight.build import build_model, plain
    from crosslight.config.compose import compose
    from crosslight.tokenizers.base import Tokenizers
    from crosslight.tokenizers.integers import IntegerTokenizer

    shape, tiny = SIZES[options["size"]], options["size"] == "tiny"
    overrides = [f"model={shape.model}", f"model.dropout={shape.dropout}", "decode.max_len_extra=0"]
    overrides += [f"decode={options['how']}"] if options["how"] in ("beam", "greedy") else []
    config = plain(compose([*overrides, f"task.objective.label_smoothing={SMOOTHING}"]))
    tokenizer = IntegerTokenizer(500 if tiny else 36996)
    tokenizers = Tokenizers(tokenizer, tokenizer, kind="integers")
    torch.manual_seed(1)
    model = build_model(config, tokenizers).to(options["device"])
    return config, tokenizers, model, MadeUp(200 if tiny else 60000, tokenizers)


def windows(data: MadeUp, tokenizers: Any, options: dict[str, Any], num_workers: int) -> Iterator[Any]:
    """Micro-batches as training gets them, without end."""
    from crosslight.data.batching import plan_epoch
    from crosslight.data.loaders import TrainingLoader

    loader = TrainingLoader(
        data,  # type: ignore[arg-type]
        tokenizers,
        plan=lambda epoch: plan_epoch(
            data.source_lengths, data.target_lengths, options["max_tokens"], seed=1, epoch=epoch
        ),
        rank=0,
        world=1,
        virtual_ranks=1,
        accumulate=1,
        num_workers=num_workers,
        pin_memory=options["device"] == "cuda",
    )
    for epoch in range(10**6):
        loader.set_epoch(epoch)
        for (batch,) in loader:
            yield batch


def train_side(options: dict[str, Any]) -> Result:
    """A loop as the task's: sums, one division, clipping, a step; nothing is read between two stretches."""
    import torch

    from crosslight.build import build_objective, make
    from crosslight.runs.compiling import compile_layers

    device, how, tiny = options["device"], options["how"], options["size"] == "tiny"
    on_gpu, half = device == "cuda", how.startswith("bf16")
    config, tokenizers, model, data = prepared(options)
    if "compiled" in how:
        compile_layers(model, "inductor" if on_gpu else "aot_eager")
    objective, pad = build_objective(config, pad_id=tokenizers.source.pad_id), tokenizers.source.pad_id
    optimizer = make(config["optimizer"])(model.train().parameters())
    parameters = list(model.parameters())
    batches = windows(data, tokenizers, options, 0 if tiny else 2)

    def update() -> tuple[int, int]:
        batch = next(batches)
        counts = int((batch.target_out != pad).sum()), int((batch.source != pad).sum())
        batch = batch.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16) if half else contextlib.nullcontext():
            loss = objective(model, batch)
        loss.total.backward()
        gradients = [p.grad for p in parameters if p.grad is not None]
        torch._foreach_div_(gradients, loss.count.clamp(min=1).to(gradients[0].dtype))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.total.detach() / loss.count)
        return counts

    losses: list[Any] = []
    begin = time.perf_counter()
    update()
    settle(device)
    first = time.perf_counter() - begin
    warm, stretches, every = (1, 2, 2) if tiny else (15, 4, 15)
    for _ in range(warm):
        update()
    rates, times, target, source = [], [], 0, 0
    for _ in range(stretches):
        settle(device)
        start, seen = time.perf_counter(), 0
        for _ in range(every):
            targets, sources = update()
            seen, target, source = seen + targets, target + targets, source + sources
        settle(device)
        times.append(time.perf_counter() - start)
        rates.append(seen / times[-1])
    memory = torch.cuda.max_memory_allocated() if on_gpu else 0
    if not torch.stack(losses).isfinite().all():
        sys.exit(f"{options['size']} {how}: a loss is no number")
    rate = statistics.median(rates)
    flops = rate * SIZES[options["size"]].flops(tokenizers.target.vocab_size, source / target)
    return {
        "tokens_per_second": rate,
        "milliseconds": 1000 * statistics.median(times) / every,
        "first_seconds": first,
        "of_peak": flops / peak(device, torch.bfloat16 if half else torch.float32, 256 if tiny else 8192),
        "of_sheet": flops / SHEET,
        "memory_mb": memory / 2**20,
        "last_loss": float(losses[-1]),
        "rates": rates,
    }


def decode_side(options: dict[str, Any]) -> Result:
    """Translations of sentences that are sorted and batched as those of a test set."""
    import torch

    from crosslight.build import build_search
    from crosslight.data.batching import plan_evaluation
    from crosslight.data.collate import collate
    from crosslight.tasks.evaluation import translate_state

    device, tiny = options["device"], options["size"] == "tiny"
    config, tokenizers, model, data = prepared(options)
    model.eval()
    search, sentences = build_search(config), 8 if tiny else 3000
    plan = plan_evaluation(data.source_lengths[:sentences], DECODED_TOGETHER)
    half = torch.autocast(device, torch.bfloat16) if device == "cuda" else contextlib.nullcontext()
    rates = []
    with torch.inference_mode(), half:
        for _ in range(2 if tiny else 3):
            tokens, start = 0, time.perf_counter()
            for rows in plan:
                batch = collate(data, rows, tokenizers, epoch=0, index=0).to(device)  # type: ignore[arg-type]
                found = translate_state(model, model.encode(batch.source), search, tokenizers.target)
                tokens += sum(len(hypotheses[0].ids) for hypotheses in found)
            settle(device)
            rates.append((sentences / (time.perf_counter() - start), tokens / (time.perf_counter() - start)))
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    sentence_rate, token_rate = (statistics.median(rate[n] for rate in rates[1:]) for n in range(2))
    return {"sentences_per_second": sentence_rate, "tokens_per_second": token_rate, "memory_mb": memory / 2**20}


def settle(device: str) -> None:
    """Wait for a GPU."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def peak(device: str, dtype: Any, size: int) -> float:
    """Operations a second of one large matrix product on the device."""
    import torch

    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    rates = []
    for _ in range(6):
        settle(device)
        start = time.perf_counter()
        for _ in range(10):
            a @ b
        settle(device)
        rates.append(10 * 2 * size**3 / (time.perf_counter() - start))
    return statistics.median(rates[1:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        tell({"train": train_side, "decode": decode_side}[sys.argv[2]](json.loads(sys.argv[3])))
    else:
        main()
