"""Word-level knowledge distillation (Kim and Rush 2016, section 3.1): learn what a trained model would have said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from crosslight.batches import Batch
from crosslight.errors import ConfigError
from crosslight.losses import LabelSmoothedCrossEntropy, TokenLoss, cross_entropy_with
from crosslight.objectives.base import Predictor


class Distillation:
    """`(1 - weight) * CE(reference) + weight * CE(teacher)`, where the teacher's softmax is taken at `temperature`.

    `teacher` is the folder of a run with the student's tokenizers; `load_teacher` gives its model. It runs without
    dropout and gradient, and is no part of the task: not in its checkpoints, not in its optimizer.
    """

    def __init__(
        self,
        *,
        teacher: str,
        weight: float,
        temperature: float,
        label_smoothing: float,
        pad_id: int,
        load_teacher: Callable[[str], nn.Module],
    ) -> None:
        if not 0 <= weight <= 1:
            raise ConfigError(f"task.objective.weight: {weight} is not in [0, 1]")
        if temperature <= 0:
            raise ConfigError(f"task.objective.temperature: {temperature} is not above 0")
        self.weight, self.temperature, self.pad_id = weight, temperature, pad_id
        self.loss = LabelSmoothedCrossEntropy(label_smoothing, pad_id)
        self.teacher = load_teacher(teacher).eval().requires_grad_(False)

    def __call__(self, model: Predictor, batch: Batch) -> TokenLoss:
        logits = model(batch.source, batch.target_in)
        loss = self.loss(logits, batch.target_out)
        if next(self.teacher.parameters()).device != batch.source.device:
            self.teacher.to(batch.source.device)
        with torch.no_grad():
            wanted = self.teacher(batch.source, batch.target_in)
        real = batch.target_out != self.pad_id
        imitation = cross_entropy_with(wanted, logits, real, temperature=self.temperature)
        return TokenLoss((1 - self.weight) * loss.total + self.weight * imitation, loss.nll, loss.count)


def with_absolute_teacher(task: dict[str, Any]) -> dict[str, Any]:
    """The task's config with a teacher that is found from any working folder: a resume may start in another one."""
    objective = task.get("objective", {})
    if "teacher" not in objective:
        return task
    return {**task, "objective": {**objective, "teacher": str(Path(objective["teacher"]).expanduser().absolute())}}
