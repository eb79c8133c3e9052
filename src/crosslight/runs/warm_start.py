"""Begin a new run with the tokenizer and the final weights of another: fine-tuning. Optimizer and schedule are new.

Nothing of the other run's config is used, and its folder is only read.
"""

import logging
import shutil
from pathlib import Path

from torch import nn

from crosslight.errors import RunError
from crosslight.runs.checkpoints import check_tokenizer, load_checkpoint, model_weights
from crosslight.runs.folder import RunFolder

log = logging.getLogger(__name__)


def take_tokenizer(init_from: str, folder: RunFolder) -> None:
    """Give a run that has no tokenizer yet that of the run `init_from`, whatever its own config says of one."""
    other = RunFolder.existing(init_from, "init_from")
    if (folder.tokenizer / "tokenizer.json").is_file():
        return
    if not (other.tokenizer / "tokenizer.json").is_file():
        raise RunError(f"init_from={init_from}: that run has no tokenizer")
    half = folder.path / "tokenizer.tmp0"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(other.tokenizer, half)
    half.replace(folder.tokenizer)
    log.info("init_from: the tokenizer is that of %s", Path(init_from))


def take_weights(init_from: str, model: nn.Module, tokenizer_hash: str) -> None:
    """Set the weights of a fresh model to the final ones of the run `init_from`. A RunError says what does not fit."""
    path = RunFolder.existing(init_from, "init_from").best
    content = load_checkpoint(path)
    check_tokenizer(content, tokenizer_hash, path)
    weights, own = model_weights(content), model.state_dict()
    for name in sorted(weights.keys() | own.keys()):
        there, here = (tuple(table[name].shape) if name in table else None for table in (weights, own))
        if there != here:
            raise RunError(
                f"init_from={init_from}: its weights do not fit this model; {name} is {there or 'missing'} there and "
                f"{here or 'missing'} here; give the same model=… and model.… settings"
            )
    model.load_state_dict(weights)
    log.info("init_from: the weights are those of %s, after its update %d", path, content.get("update", 0))
