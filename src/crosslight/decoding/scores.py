"""How hypotheses of different length are compared, and how long they may get."""

from crosslight.shapes import Int, Tensor


def length_penalty(length: int, alpha: float, offset: float = 5) -> float:
    """The divisor `((5 + length) / 6) ** alpha` of Wu et al. 2016, equation 14.

    `length` counts generated tokens, EOS included and BOS not. An alpha of 0 leaves scores as they are. With another
    `offset` in the place of 5 it is `((offset + length) / (offset + 1)) ** alpha`; 0 gives `length ** alpha`.
    """
    return ((offset + length) / (offset + 1)) ** alpha


def max_lengths(
    source_lengths: Int[Tensor, " row"], factor: float, extra: int, limit: int | None
) -> Int[Tensor, " row"]:
    """`factor * source_length + extra` tokens, EOS included, at least 1 and never above `limit` positions."""
    lengths = (source_lengths * factor + extra).long().clamp(min=1)
    return lengths if limit is None else lengths.clamp(max=limit)
