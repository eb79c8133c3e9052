"""Search speed: sentences a second of a trained run, against others with the same weights.

    python benchmarks/decode.py --rival huggingface ctranslate2 [--run outputs/…] [--beam 5] [--source FILE]

Without `--run` it takes the newest run of `experiment=multi30k_en_de`, without `--source` that run's test set. All
sides turn lines into lines, in fp32 on the CPU, each in a process of its own, in turns. Each side's settings (batch
size, threads) are tried on a part of the lines, and its fastest is measured. `same` is the share of lines that our
side translates likewise, `bleu` is against `--reference`.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measuring import Watch, interleaved, report, tell
from searchers import SEARCHERS

RUNS = Path("outputs/multi30k_en_de")
TRIED = 256
"""On so many lines the settings of a rival are compared."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rival", nargs="+", choices=[*SEARCHERS, "none"], default=[*SEARCHERS])
    parser.add_argument("--run", type=Path, help="a run folder")
    parser.add_argument("--source", help="a file, one sentence a line")
    parser.add_argument("--reference", help="its translation, for BLEU")
    parser.add_argument("--beam", type=int, nargs="+", default=[5, 1], help="1 is greedy search")
    parser.add_argument("--length-penalty", type=float, default=0.6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=int, nargs="+", default=[2048, 4096, 8192], help="our eval_max_tokens")
    parser.add_argument("--huggingface-batch", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--ctranslate2-batch", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--output", type=Path, default=Path("outputs/benchmarks/decode"))
    arguments = parser.parse_args()
    run = arguments.run or newest_run()
    for beam in arguments.beam:
        with tempfile.TemporaryDirectory() as folder:
            options = {
                "run": str(run),
                "source": arguments.source,
                "reference": arguments.reference,
                "beam": beam,
                "length_penalty": arguments.length_penalty,
                "budget": arguments.budget,
                "huggingface_batch": arguments.huggingface_batch,
                "ctranslate2_batch": arguments.ctranslate2_batch,
                "folder": folder,
            }
            sides = ["crosslight", *(rival for rival in arguments.rival if rival != "none")]
            found = interleaved(
                {side: [__file__, "--child", side, json.dumps(options)] for side in sides}, arguments.rounds
            )
        ours = found["crosslight"][0]["lines"]
        for results in found.values():
            for result in results:
                lines = result.pop("lines")
                result["same"] = sum(a == b for a, b in zip(ours, lines, strict=True)) / len(ours)
        name = "greedy" if beam == 1 else f"beam_{beam}"
        report(
            arguments.output.with_name(f"{arguments.output.name}_{name}"),
            f"translating {len(ours)} sentences, {name.replace('_', ' ')}",
            found,
            value="sentences_per_second",
            unit="sentences/s",
            extra=["same", "bleu", "peak_mb", "others"],
        )


def newest_run() -> Path:
    """The newest finished run of the Multi30k experiment."""
    runs = sorted(RUNS.glob("*/checkpoints/best.ckpt"), key=lambda file: file.stat().st_mtime)
    if not runs:
        sys.exit(f"no run in {RUNS}: give --run FOLDER, or first python train.py experiment=multi30k_en_de")
    return runs[-1].parents[1]


def child(side: str, options: dict[str, Any]) -> None:
    """Translate all lines once, after a warm-up that also chooses a rival's setting."""
    from dataclasses import replace

    import sacrebleu

    from crosslight.data.encoded import encode_side
    from crosslight.data.lines import read_lines
    from crosslight.decoding.greedy import GreedySearch
    from crosslight.inference import load_run, test_sets, translate

    run = load_run(options["run"], decode={"beam_size": options["beam"], "length_penalty": options["length_penalty"]})
    if options["beam"] == 1:
        settings = {key: run.config["decode"][key] for key in ("length_offset", "max_len_factor", "max_len_extra")}
        run = replace(run, search=GreedySearch(length_penalty=options["length_penalty"], **settings))
    references = read_lines(options["reference"]) if options["reference"] else None
    if options["source"]:
        lines = read_lines(options["source"])
    else:
        pairs = next(iter(test_sets(run, {"data.values": {}}).values()))[0]
        lines, references = list(pairs.source), list(pairs.target)

    def ours(budget: int) -> Any:
        def of(part: list[str]) -> list[str]:
            run.config["batching"]["eval_max_tokens"] = budget
            return translate(run, part).lines

        return of

    def theirs(translate_ids: Any) -> Any:
        def of(part: list[str]) -> list[str]:
            sources, _ = encode_side(run.tokenizers.source, part, run.model.max_positions, "line")
            return run.tokenizers.target.decode_batch(translate_ids(sources))

        return of

    ways = {f"eval_max_tokens={budget}": ours(budget) for budget in options["budget"]}
    if side != "crosslight":
        ways = {name: theirs(way) for name, way in SEARCHERS[side](run, options).items()}
    seconds = {}
    some = lines[:: max(1, len(lines) // TRIED)] if len(ways) > 1 else lines[:TRIED]
    for name, way in ways.items():
        way(some[:16])
        start = time.perf_counter()
        way(some)
        seconds[name] = time.perf_counter() - start
    fastest = min(seconds, key=lambda name: seconds[name])
    with Watch() as watch:
        found = ways[fastest](lines)
    facts: dict[str, Any] = {"sentences_per_second": len(lines) / watch.seconds, "others": watch.others}
    if references:
        facts["bleu"] = sacrebleu.corpus_bleu(found, [references]).score
    tell({**facts, "setting": fastest, "lines": found})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main()
