"""What a search needs: a function that makes one step for all rows, and a state that can select rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from crosslight.shapes import Int, Tensor


@runtime_checkable
class State(Protocol):
    """One row per hypothesis; `DecoderState` is one."""

    @property
    def num_rows(self) -> int: ...

    def select(self, rows: Int[Tensor, " new_row"]) -> Any: ...


Step = Callable[[Any, Any], tuple[Any, Any]]
"""`step(tokens [row, 1], state) -> (logits [row, 1, vocab], next state)`: `EncoderDecoder.decode` is one."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation: token ids without BOS and EOS, the sum of its log-probabilities (EOS included), and
    that sum divided by the length penalty, by which hypotheses of a sentence are ranked."""

    ids: tuple[int, ...]
    log_prob: float
    score: float


@runtime_checkable
class Search(Protocol):
    """Finds translations for every row of a state."""

    def __call__(
        self, step: Step, state: State, *, bos_id: int, eos_id: int, max_lengths: Int[Tensor, " row"]
    ) -> list[list[Hypothesis]]:
        """For each row the hypotheses found, best first, at least one. `max_lengths` counts EOS and is at least 1."""
        ...

    def max_lengths(self, source_lengths: Int[Tensor, " row"], limit: int | None) -> Int[Tensor, " row"]:
        """How long a translation may get, from its source's length; never above `limit` positions."""
        ...
