"""Telling that memory does not suffice from other errors."""

import torch


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory does not suffice, on a GPU or on the processor."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
