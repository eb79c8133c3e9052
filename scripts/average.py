"""Average checkpoints of a run: `python scripts/average.py run=outputs/… last=5`.

Then `python scripts/translate.py run=outputs/… checkpoint=average.ckpt` uses the mean of their weights. Arguments are
`key=value`: `run` (a run folder); one of `last=N` (the newest checkpoints), `best=N` (those with the best validation
scores) or `updates=[10,20]`; `output` (a file name in the run's checkpoints/, default average.ckpt).
"""

from typing import Any

from crosslight.config.arguments import run_script, script_arguments, value_of
from crosslight.errors import ConfigError

WISHES = ("last", "best", "updates")


def main() -> None:
    keys = {"run": str, "last": int, "best": int, "updates": str, "output": str}
    arguments = script_arguments(__doc__, keys, needed=["run"])
    wish = {key: arguments[key] for key in WISHES if key in arguments}
    if len(wish) != 1:
        raise ConfigError(f"{', '.join(wish) or 'last, best, updates'}: give one of last=N, best=N, updates=[…]")
    if "updates" in wish:
        wish["updates"] = update_numbers(wish["updates"])
    elif min(wish.values()) < 2:
        raise ConfigError(f"{next(iter(wish))}: {min(wish.values())} is no average; give at least 2")
    output = arguments.get("output", "average.ckpt")
    if not output.endswith(".ckpt") or "/" in output or output.startswith((".", "best.", "update=")):
        raise ConfigError(f"output: {output!r} is no name for it in checkpoints/; give one like average.ckpt")

    from crosslight.runs.averages import average, chosen
    from crosslight.runs.checkpoints import save_checkpoint
    from crosslight.runs.folder import RunFolder

    folder = RunFolder.existing(arguments["run"])
    mean = average(chosen(folder, **wish))
    try:
        save_checkpoint(mean, folder.checkpoints / output)
    except OSError as error:
        raise ConfigError(f"output: {folder.checkpoints / output} cannot be written ({error.strerror})") from error
    print(f"{folder.checkpoints / output}: the mean of updates {', '.join(map(str, mean['averaged']))}")


def update_numbers(text: str) -> list[int]:
    """`[10,20]` as numbers: at least two, each once."""
    value: Any = value_of("updates", text)
    numbers = value if isinstance(value, list) else [value]
    if not all(type(number) is int for number in numbers) or len({*numbers}) != len(numbers) or len(numbers) < 2:
        raise ConfigError(f"updates: {text!r} is not a list of two or more updates, such as updates=[10,20]")
    return numbers


if __name__ == "__main__":
    run_script(main)
