"""Translate standard input, line by line: `python scripts/translate.py run=outputs/… < in.txt > out.txt`.

One line out for each line in, in order; nothing but translations on standard output. Arguments are `key=value`:
`run` (a run folder), `checkpoint` (a file in its checkpoints/; default best.ckpt), `decode.<setting>` (such as
`decode.beam_size=5`), `lines` (how many lines are translated at a time, default 2000), `target_lang` (for a model of
several target languages), `engine=ctranslate2` (with what scripts/export.py has made of the checkpoint). Exit status 3:
all lines are translated, but some were cut to what the model can take.
"""

import sys
from itertools import islice

from crosslight.config.arguments import run_script, script_arguments
from crosslight.errors import ConfigError


def main() -> None:
    keys = {"run": str, "checkpoint": str, "lines": int, "target_lang": str, "engine": str}
    arguments = script_arguments(__doc__, keys, needed=["run"])
    if arguments.get("lines", 1) < 1:
        raise ConfigError(f"lines: {arguments['lines']} is less than 1")
    if sys.stdin is None:
        raise ConfigError("standard input is closed; give the text with < FILE")
    from crosslight.data.lines import decode_lines, one_line
    from crosslight.inference import load_run, translate

    run = load_run(
        arguments["run"],
        checkpoint=arguments.get("checkpoint"),
        decode=arguments["decode"],
        engine=arguments.get("engine"),
    )
    first, num_cut = 1, 0
    while block := list(islice(sys.stdin.buffer, arguments.get("lines", 2000))):
        lines = decode_lines(b"".join(block), f"standard input, from line {first}")
        found = translate(run, lines, first=first, target_lang=arguments.get("target_lang"))
        for text in found.lines:
            sys.stdout.buffer.write(one_line(text).encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()
        first, num_cut = first + len(lines), num_cut + found.num_cut
    if num_cut:
        print(f"{num_cut} of {first - 1} lines were cut; their translations miss the end", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    run_script(main)
