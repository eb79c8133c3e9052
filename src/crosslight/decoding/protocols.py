"""What a search needs: a function that makes one step for all rows, and a state whose rows can branch and leave."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from crosslight.shapes import Int, Tensor

LEAVE_TOGETHER = 1 / 8
"""Finished sentences leave once they are this part of the batch: whenever some leave, keys and values are copied."""


@runtime_checkable
class State(Protocol):
    """One row per hypothesis. A search begins with one row a sentence; `DecoderState` is such a state."""

    @property
    def num_rows(self) -> int: ...

    def select(self, sentences: Int[Tensor, " new_sentence"]) -> Any:
        """The state of the given sentences in the given order."""
        ...


@runtime_checkable
class BranchingState(State, Protocol):
    """What a step gives, `StepState` for one: a sentence has one or several places, whose rows are side by side."""

    def branch(self, parents: Int[Tensor, "sentence new_place"]) -> Any:
        """The state in which each new place continues the hypothesis at the given old place of its sentence."""
        ...


Step = Callable[[Any, Any], tuple[Any, Any]]
"""`step(tokens [row, 1], state) -> (logits [row, 1, vocab], next state, a BranchingState)`: `EncoderDecoder.decode`."""


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
