"""How much of the batches is padding, for which budget, and how long a plan takes.

    python benchmarks/padding.py source=a.en target=a.de [pairs=4500000] [vocab_size=16000]

Both files are encoded with a BPE learnt from them. `pairs` draws so many from them with replacement, for the plan of a
larger corpus of such lengths.
"""

import io
import time
from itertools import chain

import numpy as np
import sentencepiece

from crosslight.config.arguments import script_arguments
from crosslight.data.batching import plan_epoch
from crosslight.data.lines import read_lines


def main() -> None:
    keys = {"source": str, "target": str, "pairs": int, "vocab_size": int}
    arguments = script_arguments(__doc__, keys, needed=["source", "target"])
    sides = [read_lines(arguments[side]) for side in ("source", "target")]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=chain(*sides),
        model_writer=model,
        vocab_size=arguments.get("vocab_size", 16000),
        model_type="bpe",
        minloglevel=2,
    )
    encode = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode
    source, target = (np.array([len(ids) + 1 for ids in encode(side, num_threads=2)], np.int32) for side in sides)
    fit = (np.minimum(source, target) > 1) & (np.maximum(source, target) <= 257)
    source, target = source[fit], target[fit]
    if "pairs" in arguments:
        rows = np.random.default_rng(0).integers(0, len(source), arguments["pairs"])
        source, target = source[rows], target[rows]
    print(f"{len(source):,} pairs, {source.mean():.1f} and {target.mean():.1f} pieces")
    print(f"{'max_tokens':>10} {'batches':>8} {'source':>7} {'target':>7} {'both':>7} {'seconds':>8}")
    for budget in (1024, 4096, 25000):
        start = time.monotonic()
        plan = plan_epoch(source, target, budget, seed=1, epoch=0)
        seconds = time.monotonic() - start
        padded = [sum(int(side[rows].max()) * len(rows) for rows in plan) for side in (source, target)]
        real = [int(source.sum()), int(target.sum())]
        shares = [100 * (1 - a / b) for a, b in zip([*real, sum(real)], [*padded, sum(padded)], strict=True)]
        print(f"{budget:10,} {len(plan):8,} {shares[0]:6.2f}% {shares[1]:6.2f}% {shares[2]:6.2f}% {seconds:8.2f}")


if __name__ == "__main__":
    main()
