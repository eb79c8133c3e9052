"""All attention masks: boolean, True = may attend, broadcastable to `batch head query key`; combine them with `&`.

What attention takes may also be additive: zero where it may attend, the smallest finite number where not.
"""

import torch

from crosslight.shapes import Bool, Float, Int, Tensor

Mask = Bool[Tensor, "..."] | Float[Tensor, "..."] | None


def padding_mask(ids: Int[Tensor, "batch key"], pad_id: int) -> Bool[Tensor, "batch 1 1 key"]:
    """Every query may attend to the real tokens of its own sentence."""
    return (ids != pad_id)[:, None, None, :]


def causal_mask(num_queries: int, past: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 query key"]:
    """A query at `past + i` may attend to the keys at 0 … `past + i`.

    One formula for training (`past=0`), for a forced prefix and for single steps (`num_queries=1`): the rule is about
    absolute positions, so it is right for any number of cached keys.
    """
    query = torch.arange(past, past + num_queries, device=device)
    key = torch.arange(past + num_queries, device=device)
    return (key <= query[:, None])[None, None]


def window_mask(length: int, window: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 query key"]:
    """Position i may attend to j if `|i - j| <= window`."""
    position = torch.arange(length, device=device)
    return ((position[:, None] - position).abs() <= window)[None, None]


def fastest(mask: Bool[Tensor, "..."], like: Float[Tensor, "..."]) -> Mask:
    """The mask as attention on `like` takes it fastest, to be used by all layers: additive on a CPU, else as it is.

    It stays boolean where a query may attend to nothing; a sum could not tell that from all scores being equal.
    """
    if mask.device.type != "cpu" or not mask.any(dim=-1).all():
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, torch.finfo(like.dtype).min)
