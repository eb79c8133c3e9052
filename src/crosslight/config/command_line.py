"""What the command line says, and what Hydra says of it, in words that help.

A dotted override (`model.nheads=3`) is made a forced one (`++model.nheads=3`), so a misspelt key reaches the signature
check, which knows the right one; Hydra would only say that the key is not in a struct.
"""

import dataclasses
import re
from collections.abc import Sequence

from crosslight.config.check import nearest
from crosslight.config.root import RunConfig

DOTTED = re.compile(r"^(?!hydra\.)[a-z_]\w*(\.[\w-]+)+=")


def forced(arguments: Sequence[str]) -> list[str]:
    """The arguments with `++` before every dotted override; `logger=null` chooses none, as `logger=[]` does."""
    chosen = [f"{a.partition('=')[0]}=[]" if a in ("callbacks=null", "logger=null") else a for a in arguments]
    return [f"++{argument}" if DOTTED.match(argument) else argument for argument in chosen]


def explained(error: Exception, arguments: Sequence[str]) -> str:
    """Hydra's complaint in one line, with the nearest right name if a name at the root is not known."""
    known = [field.name for field in dataclasses.fields(RunConfig)] + ["experiment"]
    for argument in arguments:
        key = argument.partition("=")[0].lstrip("+~").partition("@")[0]
        root = key.partition(".")[0].partition("/")[0]
        if "=" in argument and root not in (*known, "hydra") and not argument.startswith("-"):
            return f"{key}: there is no such setting{nearest(root, known)}"
    message = str(error) or f"{type(error).__name__}: {error.__cause__ or 'the config cannot be composed'}"
    if message.startswith("Error merging override"):  # the reason is in its cause
        message = f"{message.removeprefix('Error merging override').replace('++', '')}: {error.__cause__}"
    if found := re.search(r"Key '(\w+)' not in 'RunConfig'", message):
        message = f"{message.partition(':')[0]}: {found[1]}: there is no such setting{nearest(found[1], known)}"
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    hidden = (
        "Set the env",
        "To append",
        "full_key",
        "object_type",
        "reference_type",
        "Config search path",
        "provider=",
    )
    return " ".join(line for line in lines if not line.startswith(hidden)).strip()
