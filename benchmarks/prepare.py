"""How fast training data is prepared, against `datasets.map` with a one-process SentencePiece encode.

    python benchmarks/prepare.py source=a.en target=a.de [pairs=1000000] [rounds=3] [vocab_size=16000]

The two files are repeated up to `pairs`. Both sides run in processes of their own, in turn, and are timed from the text
(ours: files; the rival: a Dataset that is loaded already) to ids on the disk. The table gives medians, the ratio, and
the peak memory of each side. `second start` is opening what is prepared, key and all.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from crosslight.config.arguments import script_arguments
from crosslight.errors import CrosslightError

KEYS = {"source": str, "target": str, "pairs": int, "rounds": int, "vocab_size": int}


def ours(folder: Path, pairs: int) -> dict[str, float]:
    """Read, clean (light), look for leaks, encode and write; then once more, from the cache."""
    from crosslight.data.cleaning import Cleaning
    from crosslight.data.corpus import Part
    from crosslight.data.leaks import LeakGuard
    from crosslight.data.parallel import FilePair
    from crosslight.data.preparation import prepare
    from crosslight.data.training_text import TrainingText
    from crosslight.tokenizers.base import Tokenizers
    from crosslight.tokenizers.sentencepiece import SentencePieceTokenizer

    tokenizer = SentencePieceTokenizer((folder / "model").read_bytes())
    tokenizers = Tokenizers(tokenizer, tokenizer, kind="sentencepiece")
    light: dict[str, Any] = dict.fromkeys(
        ("drop_identical", "drop_duplicates", "drop_control_characters", "drop_wrong_script"), False
    )
    cleaning = Cleaning(max_len=256, over_long="drop", max_ratio=None, **light)
    times = []
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for _ in range(2):
            files = FilePair(source=str(folder / "source"), target=str(folder / "target")).read("en", "de")
            start = time.monotonic()
            text = TrainingText([Part("train", files, "en", "de")], cleaning)
            data, _ = prepare(text, tokenizers, LeakGuard({}), drop_leaks=False, cache=Path(cache))
            times.append(time.monotonic() - start)
            assert abs(len(data) - pairs) < pairs / 100
    return {"seconds": times[0], "second_start": times[1]}


def rival(folder: Path, pairs: int) -> dict[str, float]:
    """`Dataset.map`, batched, one process, with SentencePiece at one thread; EOS added; no cleaning."""
    import datasets
    import sentencepiece

    datasets.disable_progress_bars()
    encode = sentencepiece.SentencePieceProcessor(model_file=str(folder / "model")).encode
    loaded = datasets.load_from_disk(str(folder / "dataset"))
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        start = time.monotonic()
        found = loaded.map(
            lambda batch: {
                "source_ids": encode(batch["source"], add_eos=True),
                "target_ids": encode(batch["target"], add_eos=True),
            },
            batched=True,
            cache_file_name=f"{cache}/ids.arrow",
        )
        seconds = time.monotonic() - start
        assert len(found) == pairs
    return {"seconds": seconds}


def set_up(folder: Path, arguments: dict[str, Any], pairs: int) -> None:
    """The repeated text, as files and as a Dataset on the disk, and a model learnt from it."""
    import datasets
    import sentencepiece

    from crosslight.data.lines import read_lines, write_lines

    for side in ("source", "target"):
        write_lines(folder / side, list(islice(cycle(read_lines(arguments[side])), pairs)))
    with open(folder / "model", "wb") as model:
        lines = (line for side in ("source", "target") for line in read_lines(arguments[side]))
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
            model_writer=model,
            vocab_size=arguments.get("vocab_size", 16000),
            model_type="bpe",
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            minloglevel=2,
        )
    rows = {side: read_lines(folder / side) for side in ("source", "target")}
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(rows).save_to_disk(str(folder / "dataset"))


def main() -> None:
    arguments = script_arguments(__doc__, KEYS, needed=["source", "target"])
    pairs, rounds = arguments.get("pairs", 1_000_000), arguments.get("rounds", 3)
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name).absolute()
        child = [sys.executable, __file__, "--child", str(folder), str(pairs)]
        subprocess.run([*child, "set_up", json.dumps(arguments)], check=True)
        found: dict[str, list[dict[str, float]]] = {"ours": [], "rival": []}
        for number in range(rounds):
            for side, results in found.items():
                done = subprocess.run([*child, side], check=True, capture_output=True, text=True)
                results.append(json.loads(done.stdout.splitlines()[-1]))
                print(f"round {number + 1}, {side}: {results[-1]}", flush=True)
    medians = {side: statistics.median(r["seconds"] for r in results) for side, results in found.items()}
    print(f"\n{'':12} {'seconds':>8} {'pairs/s':>10} {'peak MB':>8}")
    for side, seconds in medians.items():
        memory = max(result["peak_mb"] for result in found[side])
        print(f"{side:12} {seconds:8.1f} {pairs / seconds:10,.0f} {memory:8.0f}")
    print(f"ratio        {medians['rival'] / medians['ours']:8.2f}")
    print(f"second start {statistics.median(r['second_start'] for r in found['ours']):8.2f} s")


def child(folder: Path, pairs: int, side: str, arguments: str = "{}") -> None:
    if side == "set_up":
        return set_up(folder, json.loads(arguments), pairs)
    result = {"ours": ours, "rival": rival}[side](folder, pairs)
    print(json.dumps({**result, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--child"]:
            child(Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
        else:
            main()
    except CrosslightError as error:
        sys.exit(f"error: {error}")
