"""All attention masks: boolean, True = may attend, broadcastable to `batch head query key`; combine them with `&`.

What attention takes may also be additive: zero where it may attend, the smallest finite number where not. On a GPU it
may be a word, so that the fastest kernel, which takes no tensor, can be used.
"""

from enum import Enum

import torch

from crosslight.shapes import Bool, Float, Int, Tensor


class Rule(Enum):
    """A mask that needs no tensor. CAUSAL is `causal_mask` without a past."""

    CAUSAL = "causal"


Mask = Bool[Tensor, "..."] | Float[Tensor, "..."] | Rule | None


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


def causal(num_queries: int, past: int, device: torch.device) -> Mask:
    """`causal_mask`; as a word where the device and the past allow it.

    Padding needs no mask of its own there: it stands to the right, where no real query looks.
    """
    return causal_mask(num_queries, past, device) if past or device.type == "cpu" else Rule.CAUSAL


def window_mask(length: int, window: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 query key"]:
    """Position i may attend to j if `|i - j| <= window`."""
    position = torch.arange(length, device=device)
    return ((position[:, None] - position).abs() <= window)[None, None]


def additive(mask: Bool[Tensor, "..."], dtype: torch.dtype) -> Float[Tensor, "..."]:
    """Zero where the mask allows, the smallest finite number where not: to be added to scores."""
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


def fastest(mask: Mask, like: Float[Tensor, "..."]) -> Mask:
    """The mask as attention on `like` takes it fastest, to be used by all layers: additive on a CPU, else as it is.

    It stays boolean where a query may attend to nothing; a sum could not tell that from all scores being equal.
    """
    if mask is None or isinstance(mask, Rule) or mask.device.type != "cpu" or not mask.any(dim=-1).all():
        return mask
    return additive(mask, like.dtype)
