"""Initial weights: Xavier-uniform matrices, zero biases, embeddings of standard deviation d_model^-0.5.

The embedding's deviation makes the scaled embedding, and the logits of a tied output, of size one at the start.
"""

from torch import nn


def initialize(module: nn.Module) -> None:
    """Set every linear layer and embedding below `module`; norms keep their ones and zeros."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight, std=part.embedding_dim**-0.5)
