"""Loss and translations of a set of sentences: the one path behind validation, test and `scripts/evaluate.py`.

Needs no Lightning. Batches may come in any order and on any process; results are put together by sentence id.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from crosslight.batches import Batch
from crosslight.decoding.protocols import Hypothesis, Search
from crosslight.errors import RunError
from crosslight.losses import LabelSmoothedCrossEntropy, TokenLoss
from crosslight.metrics.translation import Score, score_translations
from crosslight.shapes import Float, Int, Tensor
from crosslight.tasks.memory import is_out_of_memory
from crosslight.tokenizers.base import Tokenizer

log = logging.getLogger(__name__)


@runtime_checkable
class Translator(Protocol):
    """A model that encodes sources and decodes targets step by step."""

    @property
    def max_positions(self) -> int | None: ...

    def encode(self, source: Int[Tensor, "batch source"]) -> Any: ...

    def decode(self, tokens: Int[Tensor, "row query"], state: Any) -> tuple[Float[Tensor, "row query vocab"], Any]: ...


@dataclass(frozen=True)
class EvaluationResult:
    """`hypotheses[i]` translates sentence i. `scores` has `loss` (nats per target token, not smoothed) beside the
    translation scores."""

    hypotheses: list[str]
    references: list[str]
    scores: dict[str, Score]


class Evaluation:
    """Gathers what batches of one data set give. `search` finds the translations."""

    def __init__(
        self,
        model: Translator,
        loss: LabelSmoothedCrossEntropy,
        search: Search,
        tokenizer: Tokenizer,
        target_lang: str,
    ) -> None:
        self.model, self.loss, self.search = model, loss, search
        self.tokenizer, self.target_lang = tokenizer, target_lang
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._nll, self._count = 0.0, 0
        self._texts: dict[int, tuple[str, str]] = {}

    def update(self, batch: Batch) -> None:
        """Score and translate one batch; a placeholder adds nothing. Loss and search share one encoding."""
        if not batch.sentence_ids:
            return
        try:
            loss, found = self._scored(batch)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise RunError(
                f"scoring {len(batch.sentence_ids)} sentences of up to {batch.source.shape[1]} tokens did not fit into "
                f"memory ({str(error).partition(chr(10))[0]}); lower batching.eval_max_tokens or decode.beam_size"
            ) from error
        self._nll += float(loss.nll)
        self._count += int(loss.count)
        texts = self.tokenizer.decode_batch([hypotheses[0].ids for hypotheses in found])
        self._texts |= zip(batch.sentence_ids, zip(texts, batch.references, strict=True), strict=True)

    @torch.no_grad()
    def _scored(self, batch: Batch) -> tuple[TokenLoss, list[list[Hypothesis]]]:
        state = self.model.encode(batch.source)
        logits, _ = self.model.decode(batch.target_in, state)
        loss = self.loss(logits, batch.target_out)
        return loss, translate_state(self.model, state, self.search, self.tokenizer)

    def result(self, gather: Callable[[Any], list[Any]] = lambda local: [local]) -> EvaluationResult:
        """The scores over all processes; `gather` collects an object from each. Every process gets the same result."""
        texts: dict[int, tuple[str, str]] = {}
        nll, count = 0.0, 0
        for part_nll, part_count, part_texts in gather((self._nll, self._count, self._texts)):
            nll, count = nll + part_nll, count + part_count
            texts |= part_texts
        ordered = [texts[i] for i in sorted(texts)]
        hypotheses, references = [h for h, _ in ordered], [r for _, r in ordered]
        scores = score_translations(hypotheses, references, self.target_lang)
        scores["loss"] = Score(nll / max(1, count), f"nll|nats per target token|tokens:{count}")
        return EvaluationResult(hypotheses, references, scores)


def translate_state(model: Translator, state: Any, search: Search, tokenizer: Tokenizer) -> list[list[Hypothesis]]:
    """The hypotheses that a search finds for every row of an encoded batch.

    Warns of translations that had to end where the model's positions end.
    """
    found = search(
        model.decode,
        state,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        max_lengths=search.max_lengths(state.source_lengths, model.max_positions),
    )
    if (limit := model.max_positions) is not None:
        cut = sum(len(hypotheses[0].ids) + 1 >= limit for hypotheses in found)
        if cut:
            log.warning("%d translations were ended at the model's limit of %d positions", cut, limit)
    return found
