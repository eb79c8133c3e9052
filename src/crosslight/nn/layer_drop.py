"""LayerDrop (Fan et al. 2020): in training, each layer of a stack is skipped with one probability; no rescaling."""

import torch


def layers_to_run(num_layers: int, layer_drop: float) -> list[bool]:
    """Which layers run this time, each with probability `1 - layer_drop`.

    Drawn from the CPU's default generator: a draw on a GPU would make the program wait for it.
    """
    if not layer_drop:  # draw nothing: dropout on a CPU takes its numbers from the same generator
        return [True] * num_layers
    return (torch.rand(num_layers, device="cpu") >= layer_drop).tolist()
