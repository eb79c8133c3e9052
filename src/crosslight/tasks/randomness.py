"""Randomness keyed by position: what a micro-batch draws depends on (seed, epoch, micro-batch) and nothing else.

So there is no generator state to save, and the same micro-batch gets the same masks in any process.
"""

import hashlib

import torch


def position_seed(*position: int) -> int:
    """63 well-mixed bits from a few integers."""
    digest = hashlib.blake2b(",".join(map(str, position)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_position(seed: int, epoch: int, index: int, device: torch.device) -> None:
    """Seed the generators that a forward pass draws from: dropout that of `device`, skipped layers the CPU's."""
    value = position_seed(seed, epoch, index)
    torch.default_generator.manual_seed(value)  # torch.manual_seed costs a hundred times as much
    if device.type == "cuda":
        torch.cuda.manual_seed(value)
