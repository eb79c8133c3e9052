"""Fully sharded data parallelism (FSDP2): every layer's weights are spread over the processes.

A search takes as many steps as its sentences need, so processes that gathered weights in each step would wait for each
other for ever. Weights are therefore gathered whole before an evaluation and spread again after it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method


def shard(model: nn.Module, mesh: Any) -> None:
    """Spread the layers, then what is left of the model; a model that is spread already stays as it is."""
    if isinstance(model, FSDPModule):
        return
    for name, part in model.named_modules():
        if name.rpartition(".")[0] in ("encoder.layers", "decoder.layers"):
            fully_shard(part, mesh=mesh)
            if hasattr(part, "start"):
                register_fsdp_forward_method(part, "start")
    fully_shard(model, mesh=mesh)
    for method in ("encode", "decode"):
        register_fsdp_forward_method(model, method)


def gather_weights(model: nn.Module) -> None:
    """Make all weights whole on every process, until `spread_weights`."""
    for part in _sharded(model):
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()


def spread_weights(model: nn.Module) -> None:
    """Undo `gather_weights`."""
    for part in _sharded(model):
        part.reshard()
        part.set_reshard_after_forward(part is not model, recurse=False)


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give the model these weights, which every process has; of a model that is spread each takes its part."""
    state: dict[str, Any] = {**weights}
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))


def _sharded(model: nn.Module) -> Iterator[FSDPModule]:
    return (part for part in model.modules() if isinstance(part, FSDPModule))
