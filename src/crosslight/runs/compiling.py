"""`torch.compile` of the layers, in training only: one graph for all encoder layers, one for all decoder layers.

A graph serves every batch whatever its size. Embeddings, the output projection with its loss, validation and search
are not compiled: a loop over chunks and a search would need a graph for each of their shapes. Modules stay what they
are, so checkpoints have the same names with and without.
"""

import os
import shutil
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crosslight.errors import ConfigError


def compile_layers(model: nn.Module, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile the layers of an encoder-decoder in place. Call it before the model is spread over processes."""
    import torch.fx.experimental._config as shapes

    shapes.use_duck_shape = False  # type: ignore[attr-defined]  # equal sizes in the first batch are no rule for the next
    torch._dynamo.config.optimize_ddp = False  # it splits a graph at DDP's buckets; a layer is a part already
    compiled: dict[type, Callable[..., Any]] = {}
    for name, layer in model.named_modules():
        if name.rpartition(".")[0] in ("encoder.layers", "decoder.layers"):
            kind = type(layer)
            if kind not in compiled:
                compiled[kind] = torch.compile(kind.forward, dynamic=True, backend=backend)
            # its forward, not the module: hooks (FSDP's) stay outside, and the weights keep their names
            layer.forward = partial(_forward, compiled[kind], kind.forward, layer)  # type: ignore[method-assign]


def _forward(compiled: Callable[..., Any], plain: Callable[..., Any], layer: nn.Module, x: Tensor, *others: Any) -> Any:
    """The compiled layer in training. Sizes of 1 broadcast: torch.compile would make other graphs for them."""
    sizes = [*x.shape[:2], *(other.shape[-1] for other in others if isinstance(other, Tensor))]
    return (compiled if layer.training and min(sizes) > 1 else plain)(layer, x, *others)


def check_compiler(*, on_gpu: bool) -> None:
    """Raise a ConfigError if torch.compile would find no compiler on this machine."""
    from torch.utils._triton import has_triton

    missing = []
    names = ("gcc", "clang", "cc") if on_gpu else ("g++", "clang++", "c++")
    named = os.environ.get("CC" if on_gpu else "CXX", "")
    if not any(shutil.which(name) for name in (named, *names) if name):
        missing.append(f"a compiler ({' or '.join(names[:2])})")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        missing.append("Python's headers (package python3-dev)")
    if on_gpu and not has_triton():
        missing.append("the package triton, on a GPU that it knows")
    if missing:
        raise ConfigError(f"trainer.compile: true needs {' and '.join(missing)}; install that, or give false")
