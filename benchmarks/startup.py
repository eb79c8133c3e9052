"""How long the commands take to begin, beside what importing torch and Lightning alone takes.

    python benchmarks/startup.py run=outputs/… [rounds=5] [text="A man sits."] [output=outputs/benchmarks/startup]

`run` is a trained run, for `scripts/translate.py`. Each command runs in a process of its own, in turns, and is timed
from its start: `--help` and the imports to their end, training to the line of the first update, once with prepared data
and once with an empty cache, translating to the first translation. What the disk holds is in memory from the round
before; the first round, which reads it, is not counted.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from measuring import Watch, interleaved, report, tell

from crosslight.config.arguments import script_arguments
from crosslight.errors import CrosslightError

ROOT = Path(__file__).resolve().parents[1]
KEYS = {"run": str, "rounds": int, "text": str, "output": str}
FIRST_UPDATE = b"update 1/"

SIDES = {
    "train.py --help": [f"{ROOT}/train.py", "--help"],
    "train.py to update 1": [f"{ROOT}/train.py"],
    "the same, nothing prepared": [f"{ROOT}/train.py"],
    "translate.py": [f"{ROOT}/scripts/translate.py"],
    "import torch": ["-c", "import torch"],
    "import lightning.pytorch": ["-c", "import lightning.pytorch"],
}


def measured(side: str, run: str, text: str, cache: str) -> None:
    """Run the command of a side to the point that counts."""
    line = [sys.executable, "-u", *SIDES[side], *([f"run={run}"] if side == "translate.py" else [])]
    with tempfile.TemporaryDirectory() as folder, Watch() as watch:
        environment = {**os.environ, "CROSSLIGHT_CACHE": folder if side.endswith("nothing prepared") else cache}
        process = subprocess.Popen(
            line, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdin
        assert process.stdout
        process.stdin.write(f"{text}\n".encode())
        process.stdin.close()
        wanted = FIRST_UPDATE if "update" in side or "prepared" in side else None
        output = []
        for said in process.stdout:
            output.append(said)
            if wanted and wanted in said:
                process.kill()
                break
        status = process.wait()
    if status and not (wanted and output and wanted in output[-1]):
        sys.exit(f"{side} ended with status {status}:\n{b''.join(output).decode()}")
    tell({"seconds": watch.seconds, "others": watch.others})


def main() -> None:
    arguments = script_arguments(__doc__, KEYS, needed=["run"])
    rounds, text = arguments.get("rounds", 5), arguments.get("text", "A man sits.")
    with tempfile.TemporaryDirectory() as cache:
        run = str(Path(arguments["run"]).absolute())
        found = interleaved({side: [__file__, "--child", side, run, text, cache] for side in SIDES}, rounds + 1)
    counted = {side: results[1:] for side, results in found.items()}
    stem = Path(arguments.get("output", "outputs/benchmarks/startup"))
    report(stem, "Seconds from the start of a process", counted, value="seconds", unit="s", extra=["peak_mb"])


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--child"]:
            measured(*sys.argv[2:])
        else:
            main()
    except CrosslightError as error:
        sys.exit(f"error: {error}")
