"""The mean of several checkpoints' weights (Vaswani et al. 2017, section 6.1). Needs no Lightning."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from crosslight.errors import ConfigError, RunError
from crosslight.runs.checkpoints import MODEL_PREFIX, load_checkpoint, model_weights
from crosslight.runs.folder import RunFolder, numbered, update_of
from crosslight.shapes import Tensor


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """How many checkpoints are averaged after the training: the newest `last`, and the `best`; 0 averages none."""

    last: int
    best: int

    def __post_init__(self) -> None:
        for name in ("last", "best"):
            number = getattr(self, name)
            if number < 0 or number == 1:
                raise ConfigError(f"averaging.{name}: {number} is no average; give 0 for none, or at least 2")


def average(paths: Sequence[Path]) -> dict[str, Any]:
    """A checkpoint with the mean of the given ones' weights; a run cannot resume from it.

    Halves are added in float32 and rounded once; what is not a floating-point number comes from the newest update.
    Tensors that share memory are averaged once and stay shared. One file is in memory at a time, beside the sum. A
    RunError names a file that is damaged or of another model.
    """
    paths = sorted(paths, key=update_of)
    total: dict[str, Tensor] = {}
    for path in paths:
        checkpoint = load_checkpoint(path)
        kind, weights, facts = _kind(path, checkpoint), model_weights(checkpoint), checkpoint["crosslight"]
        if path == paths[0]:
            first, owner = kind, _owners(weights)
        for what, value in kind.items():
            if value != first[what]:
                raise RunError(f"{path}: cannot be averaged with {paths[0].name}, for it has {what}")
        for name in sorted({name for name in owner.values() if weights[name].is_floating_point()}):
            half = weights[name].dtype in (torch.float16, torch.bfloat16)
            wide = weights[name].float() if half else weights[name]
            total[name] = total[name].add_(wide) if name in total else wide
        dtypes = {name: tensor.dtype for name, tensor in weights.items()}
        others = {name: tensor for name, tensor in weights.items() if owner[name] not in total}
        del checkpoint, weights  # before the next one is read
    mean = {name: tensor.div_(len(paths)).to(dtypes[name]) for name, tensor in total.items()}
    return {
        "state_dict": {MODEL_PREFIX + n: others[n] if n in others else mean[owner[n]] for n in dtypes},
        "crosslight": facts,
        "averaged": [update_of(path) for path in paths],
    }


def _kind(path: Path, checkpoint: Any) -> dict[str, Any]:
    """What checkpoints must have in common, each under the words for the case that they have not."""
    facts = checkpoint.get("crosslight") if isinstance(checkpoint, dict) else None
    if facts is None:
        raise RunError(f"{path}: not a checkpoint of a run of ours")
    return {
        "another tokenizer": facts["tokenizer_sha256"],
        "another model": {k: v for k, v in facts["config"]["model"].items() if not k.endswith("dropout")},
        "weights of other shapes": {name: tensor.shape for name, tensor in model_weights(checkpoint).items()},
    }


def _owners(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """For each name the first name of the same memory: a shared table is one tensor under several names."""
    first: dict[Any, str] = {}
    return {
        name: first.setdefault((t.untyped_storage().data_ptr(), t.storage_offset(), t.shape, t.stride()), name)
        for name, t in weights.items()
    }


def chosen(
    folder: RunFolder, *, last: int | None = None, best: int | None = None, updates: Sequence[int] | None = None
) -> list[Path]:
    """The checkpoints of a run that one of three wishes means: the newest, the best, or those after given updates.

    A RunError lists what is there, in order, if that is less than the wish.
    """
    saved = folder.updates_saved()
    if last is not None:
        found, wish = saved[-last:], f"last={last}"
    elif best is not None:
        values = load_checkpoint(saved[-1])["callbacks"]["Best"]["values"] if saved else {}
        found, wish = [folder.kept_at(update) for update in list(values)[:best]], f"best={best}"
        saved = sorted((folder.kept_at(update) for update in values), key=update_of)
    else:
        kept = {update_of(path): path for path in numbered(folder.kept)}
        everything = {**kept, **{update_of(path): path for path in saved}}
        saved = [everything[update] for update in sorted(everything)]
        found, wish = [everything[u] for u in updates or () if u in everything], f"updates={updates}"
    there = ", ".join(str(path.relative_to(folder.checkpoints)) for path in saved) or "none"
    if len(found) < (last or best or len(updates or ())):
        raise RunError(f"{wish}: {folder.checkpoints} has not as many checkpoints; there are {there}")
    return found
