"""Ways to tell the model where a token stands: none, sinusoidal, learned, rotary.

Additive kinds act on the embeddings (`embed`), rotary ones on queries and keys of self-attention (`rotate`).
"""

import torch
from torch import nn

from crosslight.errors import ConfigError, DataError
from crosslight.shapes import Float, Tensor


class Positions(nn.Module):
    """The identity: no positions at all. The base of the other kinds and the choice for cross-attention.

    `limit` is the largest number of positions that the kind can tell apart, None if there is no such number.
    """

    limit: int | None = None

    def __init__(self, d_model: int = 0, head_dim: int = 0) -> None:
        super().__init__()

    def in_attention(self) -> "Positions":
        """What self-attention needs of them: itself if it rotates, else none."""
        return Positions()

    def embed(self, x: Float[Tensor, "batch length d_model"], offset: int) -> Float[Tensor, "batch length d_model"]:
        """`x` with positions `offset`, `offset + 1`, … worked in."""
        return x

    def rotate(
        self, heads: Float[Tensor, "batch head length head_dim"], offset: int
    ) -> Float[Tensor, "batch head length head_dim"]:
        """Queries or keys turned by their positions `offset`, `offset + 1`, …."""
        return heads


class SinusoidalPositions(Positions):
    """Vaswani et al. 2017, section 3.5: `sin(pos / 10000^(2i/d))` in even dimensions, `cos` in odd ones.

    The table grows to any length that is asked for.
    """

    table: Tensor

    def __init__(self, d_model: int, head_dim: int = 0) -> None:
        super().__init__()
        if d_model % 2:
            raise ConfigError(f"model.d_model: {d_model} is odd; sinusoidal positions need pairs of dimensions")
        self.d_model = d_model
        self.register_buffer("table", sinusoids(256, d_model), persistent=False)

    def embed(self, x: Float[Tensor, "batch length d_model"], offset: int) -> Float[Tensor, "batch length d_model"]:
        end = offset + x.shape[1]
        if end > self.table.shape[0]:
            with torch.inference_mode(False):
                self.table = sinusoids(max(end, 2 * self.table.shape[0]), self.d_model).to(self.table.device)
        return x + self.table[offset:end].to(x.dtype)


def sinusoids(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """Sines and cosines as float32, computed in float64: float32 angles are off by 1e-4 at position 4000."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


class LearnedPositions(Positions):
    """One trained vector a position, added to the embeddings; a clear error past the end of the table."""

    def __init__(self, d_model: int, head_dim: int = 0, *, max_positions: int) -> None:
        super().__init__()
        self.limit = max_positions
        self.table = nn.Embedding(max_positions, d_model)

    def embed(self, x: Float[Tensor, "batch length d_model"], offset: int) -> Float[Tensor, "batch length d_model"]:
        end, size = offset + x.shape[1], self.table.num_embeddings
        if end > size:
            raise DataError(
                f"a sequence of {end} tokens does not fit model.positions.max_positions={size}; "
                f"shorten it, or train with max_positions of at least {end}"
            )
        return x + self.table.weight[offset:end]


class RotaryPositions(Positions):
    """Su et al. 2021 (RoFormer), equation 34: pairs of query and key dimensions turned by `pos * base^(-2i/head_dim)`.

    A score then depends on the distance of query and key only. Dimension i is paired with i + head_dim / 2.
    """

    cosine: Tensor
    sine: Tensor

    def __init__(self, d_model: int = 0, *, head_dim: int, base: float = 10000.0) -> None:
        super().__init__()
        if head_dim % 2:
            raise ConfigError(f"model: head_dim = d_model / num_heads = {head_dim} is odd; rotary positions need pairs")
        self.head_dim, self.base = head_dim, base
        cosine, sine = self._tables(256)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def in_attention(self) -> Positions:
        return self

    def _tables(self, length: int) -> tuple[Tensor, Tensor]:
        frequency = self.base ** (-torch.arange(0, self.head_dim, 2, dtype=torch.float64) / self.head_dim)
        angle = torch.arange(length, dtype=torch.float64)[:, None] * torch.cat([frequency, frequency])
        return angle.cos().float(), angle.sin().float()

    def rotate(
        self, heads: Float[Tensor, "batch head length head_dim"], offset: int
    ) -> Float[Tensor, "batch head length head_dim"]:
        end = offset + heads.shape[2]
        if end > self.cosine.shape[0]:
            with torch.inference_mode(False):  # Lightning validates in it, and no later backward may save its tensors
                tables = self._tables(max(end, 2 * self.cosine.shape[0]))
                self.cosine, self.sine = (table.to(self.cosine.device) for table in tables)
        first, second = heads.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        cosine, sine = self.cosine[offset:end].to(heads.dtype), self.sine[offset:end].to(heads.dtype)
        return heads * cosine + turned * sine
