"""A run folder without a training: the scripts' input, made in milliseconds."""

from pathlib import Path
from typing import Any

import yaml

from crosslight.runs.checkpoints import save_checkpoint
from crosslight.runs.folder import RunFolder
from crosslight.tokenizers.base import Tokenizers


def untrained_run(path: Path, config: dict[str, Any], tokenizers: Tokenizers, model: Any) -> RunFolder:
    """What training leaves behind, with the weights that the model has."""
    folder = RunFolder(path)
    tokenizers.save(folder.tokenizer)
    facts = {"tokenizer_sha256": tokenizers.content_hash, "config": config}
    weights = {f"model.{key}": value for key, value in model.state_dict().items()}
    save_checkpoint({"state_dict": weights, "crosslight": facts}, folder.best)
    folder.config.write_text(yaml.safe_dump(config))
    return folder
