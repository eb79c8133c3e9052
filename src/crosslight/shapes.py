"""The vocabulary of shapes: jaxtyping's types and the axis names that every annotation uses.

Axes are spelled out, batch first: `batch source target query key head head_dim d_model vocab row`, where a `row` is
one hypothesis in a search (batch x beam). A mask is boolean, True where a query may attend to a key, and broadcasts to
`batch head query key`. Token ids are int64. The tests execute these annotations through jaxtyping's import hook.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor"]
