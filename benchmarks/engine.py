"""How fast `translate.py engine=ctranslate2` is against CTranslate2 called directly with the same pieces.

    python benchmarks/engine.py run=outputs/… source=in.en [rounds=5] [beam=5] [output=outputs/benchmarks/engine]

The run has to be exported (scripts/export.py). Ours is a text that becomes ids, is translated with the ranking and
greatest lengths of the run, and becomes text again; directly, pieces of SentencePiece go to `translate_batch` with
CTranslate2's own length penalty, in batches of as many sentences as ours have in the mean, and are joined again. Both
use one thread a batch and as many batches at a time as there are cores. Models are loaded, and some lines translated,
before the clock starts.
"""

import os
import sys
from pathlib import Path

from measuring import Watch, interleaved, report, tell

from crosslight.config.arguments import script_arguments
from crosslight.errors import CrosslightError

KEYS = {"run": str, "source": str, "rounds": int, "beam": int, "output": str}


def ours(run: str, lines: list[str], beam: int) -> Watch:
    """Through `inference.translate`."""
    from crosslight.inference import load_run, translate

    loaded = load_run(run, decode={"beam_size": beam}, engine="ctranslate2")
    translate(loaded, lines[:50])
    with Watch() as watch:
        translate(loaded, lines)
    return watch


def direct(run: str, lines: list[str], beam: int) -> Watch:
    """Without us."""
    import ctranslate2
    import sentencepiece
    import yaml

    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{run}/tokenizer/source.model")
    config = yaml.safe_load(Path(run, "config.yaml").read_text())
    cores = len(os.sched_getaffinity(0))
    translator = ctranslate2.Translator(
        f"{run}/exported/ctranslate2", compute_type="float32", inter_threads=cores, intra_threads=1
    )

    def translated(lines: list[str]) -> list[str]:
        sources = pieces.encode(lines, out_type=str)
        mean = sum(map(len, sources)) / len(sources) + 1
        found = translator.translate_batch(
            sources,
            beam_size=beam,
            length_penalty=config["decode"]["length_penalty"],
            max_batch_size=round(config["batching"]["eval_max_tokens"] / mean),
            max_decoding_length=max(map(len, sources)) + config["decode"]["max_len_extra"],
            max_input_length=0,
        )
        return [pieces.decode(result.hypotheses[0]) for result in found]

    translated(lines[:50])
    with Watch() as watch:
        translated(lines)
    return watch


def main() -> None:
    arguments = script_arguments(__doc__, KEYS, needed=["run", "source"])
    rest = [arguments["run"], arguments["source"], str(arguments.get("beam", 5))]
    sides = {"engine=ctranslate2": "ours", "CTranslate2 directly": "direct"}
    found = interleaved(
        {name: [__file__, "--child", side, *rest] for name, side in sides.items()}, arguments.get("rounds", 5)
    )
    stem = Path(arguments.get("output", "outputs/benchmarks/engine"))
    report(stem, "Sentences a second", found, value="rate", unit="sentences/s", extra=["peak_mb"])


def child(side: str, run: str, source: str, beam: str) -> None:
    lines = Path(source).read_text(encoding="utf-8").splitlines()
    watch = {"ours": ours, "direct": direct}[side](run, lines, int(beam))
    tell({"rate": len(lines) / watch.seconds, "others": watch.others})


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--child"]:
            child(*sys.argv[2:])
        else:
            main()
    except CrosslightError as error:
        sys.exit(f"error: {error}")
