"""Token embeddings, scaled by sqrt(d_model), with positions and dropout (Vaswani et al. 2017, sections 3.4 and 5.4)."""

import math

from torch import nn

from crosslight.nn.dropout import Dropout
from crosslight.nn.positions import Positions
from crosslight.shapes import Float, Int, Tensor


class Embedding(nn.Module):
    """`dropout(sqrt(d_model) * table[ids] + positions)`. The positions module is shared with whoever passes it in."""

    def __init__(self, vocab_size: int, d_model: int, *, positions: Positions, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, d_model)
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(d_model)

    def forward(self, ids: Int[Tensor, "batch length"], offset: int = 0) -> Float[Tensor, "batch length d_model"]:
        return self.dropout(self.positions.embed(self.table(ids) * self.scale, offset))
