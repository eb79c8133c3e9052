"""Sequence-to-sequence translation: cross-entropy in training, search and sacreBLEU in validation and test."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from crosslight.batches import Batch
from crosslight.decoding.protocols import Search
from crosslight.losses import LabelSmoothedCrossEntropy, TokenLoss
from crosslight.optim.schedules import Schedule
from crosslight.tasks.base import Task, gather_objects
from crosslight.tasks.evaluation import Evaluation, EvaluationResult
from crosslight.tasks.reduction import Reduction
from crosslight.tokenizers.base import Tokenizer


class Seq2SeqTask(Task):
    """Trains `model(source, target_in) -> logits`. `validation_result` and `test_results` hold what was found last.

    `target_lang` is the language of the validation set, `test_langs` that of each test set: the scorer asks for it.
    """

    def __init__(
        self,
        *,
        label_smoothing: float,
        model: nn.Module,
        search: Search,
        tokenizer: Tokenizer,
        target_lang: str,
        test_langs: dict[str, str],
        optimizer: Callable[[list[dict[str, Any]]], Optimizer],
        schedule: Schedule,
        reduction: Reduction,
        clip: float | None,
        seed: int,
    ) -> None:
        super().__init__(model, optimizer=optimizer, schedule=schedule, reduction=reduction, clip=clip, seed=seed)
        self.loss = LabelSmoothedCrossEntropy(label_smoothing, tokenizer.pad_id)
        self.test_names = list(test_langs)

        def evaluation(lang: str) -> Evaluation:
            return Evaluation(model, self.loss, search, tokenizer, lang)  # type: ignore[arg-type]

        self._validation = evaluation(target_lang)
        self._tests = [evaluation(lang) for lang in test_langs.values()]
        self.validation_result: EvaluationResult | None = None
        self.test_results: dict[str, EvaluationResult] = {}

    def loss_of(self, batch: Batch) -> TokenLoss:
        return self.loss(self.model(batch.source, batch.target_in), batch.target_out)

    def on_validation_epoch_start(self) -> None:
        self._validation.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        if not self.abandoned:
            self._validation.update(batch)

    def on_validation_epoch_end(self) -> None:
        if self.abandoned:
            return
        self.validation_result = result = self._validation.result(gather_objects)
        self.log_dict({f"val/{name}": score.value for name, score in result.scores.items()}, logger=False)

    def on_test_start(self) -> None:
        self.on_validation_start()

    def on_test_end(self) -> None:
        self.on_validation_end()

    def on_test_epoch_start(self) -> None:
        for test in self._tests:
            test.reset()

    def test_step(self, batch: Batch, batch_idx: int, dataloader_idx: int = 0) -> None:
        self._tests[dataloader_idx].update(batch)

    def on_test_epoch_end(self) -> None:
        for name, test in zip(self.test_names, self._tests, strict=True):
            self.test_results[name] = result = test.result(gather_objects)
            self.log_dict({f"test/{name}/{metric}": s.value for metric, s in result.scores.items()}, logger=False)
