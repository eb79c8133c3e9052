"""Describe data before training on it: `python scripts/describe.py data=… [batching.max_tokens=…]`.

Takes the arguments of train.py, prepares the data as training would (which then finds it in the cache) and prints
sizes, lengths, vocabulary, batches, what was left out and what leaked. The last line names an HTML page with the same
numbers and plots.

`run=outputs/…` describes the data of a run, with its tokenizer and its config; then only values of data, cleaning and
batching can be changed. `output=FILE.html` says where the page goes; by default that is description.html in the run
folder, or outputs/NAME.html; `output=null` writes none.

`scheduler=cosine`, or several as `scheduler=[cosine,wsd]`, describes the learning rate instead, without touching data:
values such as scheduler.warmup_steps=…, trainer.max_steps=… and optimizer.lr=… count, and so does data=…, for its file
may set them. The page is outputs/schedule.html; `output=FILE.png` (.svg, .pdf) is the plot alone.
"""

import logging
import sys
from pathlib import Path

from crosslight.config.arguments import checked_output, run_script, with_values
from crosslight.errors import ConfigError
from crosslight.runs.folder import RunFolder, write_atomically

CHANGEABLE = ("data", "cleaning", "batching")


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print((__doc__ or "").strip())
        return
    logging.basicConfig(format="%(message)s")
    for layer in ("data", "tokenizers"):  # preparing may take long and says how far it is
        logging.getLogger(f"crosslight.{layer}").setLevel(logging.INFO)
    own = {key: value for key, _, value in (a.partition("=") for a in sys.argv[1:]) if key in ("run", "output")}
    overrides = [argument for argument in sys.argv[1:] if argument.partition("=")[0] not in own]

    chosen = next((a.partition("=")[2] for a in overrides if a.startswith("scheduler=")), None)
    if chosen is not None and "run" not in own:
        return describe_schedules(chosen, overrides, own.get("output", "outputs/schedule.html"))

    from omegaconf import OmegaConf

    from crosslight.config.compose import compose, plain
    from crosslight.describing import describe
    from crosslight.description.page import as_html, as_text

    if "run" in own:
        folder = RunFolder.existing(own["run"])
        for override in overrides:
            if not override.startswith(tuple(f"{group}." for group in CHANGEABLE)) or "=" not in override:
                raise ConfigError(f"{override}: with run=… only values of {', '.join(CHANGEABLE)} can be changed")
        node = with_values(OmegaConf.create(folder.read_config()), overrides)
        config = OmegaConf.to_container(node)  # unresolved: the config of a run has no interpolations, or is refused
        description = describe(config, folder.tokenizer, trusted_only=True)  # type: ignore[arg-type]
        page = folder.path / "description.html"
    else:
        config = plain(compose(overrides))
        page = Path("outputs") / f"{config['name']}.html"
        description = describe(config)
    print(as_text(description))
    if own.get("output") != "null":
        write(checked_output(own["output"]) if "output" in own else page, as_html(description).encode())


def describe_schedules(chosen: str, overrides: list[str], output: str) -> None:
    """Print and draw the learning rate under each of the chosen schedules: `cosine` or `[cosine,wsd]`."""
    from crosslight.config.compose import compose, plain
    from crosslight.description.plots import PICTURES
    from crosslight.description.schedules import as_html, as_picture, as_text
    from crosslight.rates import describe_schedule

    others = [override for override in overrides if not override.startswith("scheduler=")]
    names = [name.strip() for name in chosen.strip("[]").split(",")]
    curves = [describe_schedule(plain(compose([*others, f"scheduler={name}"])), name) for name in names]
    print(as_text(curves))
    if output != "null":
        path = checked_output(output)
        write(path, as_picture(curves, path.suffix) if path.suffix in PICTURES else as_html(curves).encode())


def write(path: Path, content: bytes) -> None:
    """Write the page or picture and print its name, last."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise ConfigError(f"output: {path} cannot be written ({error.strerror})") from error
    print(f"\n{path}")


if __name__ == "__main__":
    run_script(main)
