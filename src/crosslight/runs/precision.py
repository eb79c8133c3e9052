"""What `trainer.precision=auto` stands for: bfloat16 where the machine has it and the model gains."""

from collections.abc import Mapping
from typing import Any

import torch

WIDE_ENOUGH = 256
"""The width of a model from which its matrix products outweigh the conversions (docs/performance.md)."""


def chosen_precision(model: Mapping[str, Any], *, on_gpu: bool) -> tuple[str, str]:
    """A value of `trainer.precision`, and why, for a model's config.

    torch computes in bfloat16 also where the processor cannot, at a quarter of the speed of float32; so it is the
    instructions that are asked for, not what torch calls supported.
    """
    width, device = model.get("d_model", 0), "GPU" if on_gpu else "processor"
    if not (_gpu_multiplies_in_bf16() if on_gpu else _processor_multiplies_in_bf16()):
        return "32", f"this {device} has no bfloat16 instructions"
    if width < WIDE_ENOUGH:
        return "32", f"a model of d_model={width} gains nothing from the {device}'s bfloat16"
    return "bf16", f"this {device} multiplies in bfloat16; weights and sums stay in float32"


def _gpu_multiplies_in_bf16() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


def _processor_multiplies_in_bf16() -> bool:
    """AVX512_BF16, AMX-BF16 or ARM's BF16."""
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # torch 2.6 has none
    return any(has is True for name, has in capabilities.items() if name.endswith("bf16"))
