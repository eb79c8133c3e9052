"""Lightning strategies and its checkpoint plugin, as our updates need them."""

from pathlib import Path
from typing import Any

import torch.distributed as dist
from lightning.pytorch.plugins.io import CheckpointIO
from lightning.pytorch.strategies import DDPStrategy

from crosslight.runs.checkpoints import load_checkpoint, save_checkpoint


class PlainStrategy(DDPStrategy):
    """A process group without DDP's reducer: the task's reduction sums the gradients.

    The reducer rebuilds its buckets after its first step, so a resumed run would sum in another order.
    """

    def configure_ddp(self) -> None:
        assert self.model is not None
        for tensor in (*self.model.parameters(), *self.model.buffers()):
            dist.broadcast(tensor.data, src=0)


class AtomicCheckpoints(CheckpointIO):
    """Saves under a temporary name beside the target, flushes, renames; loads plain data only.

    `loaded` is the checkpoint of the first load, where somebody has read it before.
    """

    def __init__(self, loaded: dict[str, Any] | None = None) -> None:
        self._loaded = loaded

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        save_checkpoint(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        content, self._loaded = self._loaded, None
        return load_checkpoint(Path(path)) if content is None else content

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)
