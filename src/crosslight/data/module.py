"""The LightningDataModule: hands loaders to the trainer and keeps the position in training for a resume."""

import hashlib
from functools import cached_property
from typing import Any

import numpy as np
from lightning.pytorch import LightningDataModule

from crosslight.batches import Batch
from crosslight.data.batching import Batching, Rows, plan_epoch, rows_of_epoch
from crosslight.data.collate import Resampled
from crosslight.data.encoded import EncodedPairs
from crosslight.data.loaders import TrainingLoader, evaluation_loader, share_of
from crosslight.data.streaming import Mark, StreamLoader, TrainingStream
from crosslight.errors import RunError
from crosslight.tokenizers.base import Tokenizers


class TranslationData(LightningDataModule):
    """Loaders over encoded pairs. An update takes `accumulate * virtual_ranks` micro-batches.

    `shares` says how much of an epoch each part of the training pairs gives; None takes every pair once.
    """

    def __init__(
        self,
        *,
        train: EncodedPairs | TrainingStream,
        validation: EncodedPairs,
        tests: dict[str, EncodedPairs],
        tokenizers: Tokenizers,
        batching: Batching,
        shares: list[float] | None,
        resampled: Resampled | None,
        seed: int,
        virtual_ranks: int,
        accumulate: int,
    ) -> None:
        super().__init__()
        self.train, self.validation, self.tests, self.tokenizers = train, validation, tests, tokenizers
        self.batching, self.shares, self.resampled = batching, shares, resampled
        self.seed, self.virtual_ranks, self.accumulate = seed, virtual_ranks, accumulate
        self._position: dict[str, Any] = {"epoch": 0, "updates": 0}
        self._stream: StreamLoader | None = None

    def plan(self, epoch: int) -> list[Rows]:
        """The micro-batches of an epoch of prepared pairs."""
        assert isinstance(self.train, EncodedPairs)
        rows = None
        if self.shares is not None:
            rows = rows_of_epoch(self.train.parts, self.shares, seed=self.seed, epoch=epoch)
        lengths = self.train.source_lengths, self.train.target_lengths
        return plan_epoch(*lengths, self.batching.budget, seed=self.seed, epoch=epoch, rows=rows)

    @property
    def _epoch(self) -> int:
        """How many epochs are over."""
        assert self.trainer is not None
        return self.trainer.current_epoch

    def train_dataloader(self) -> TrainingLoader | StreamLoader:
        """A loader for the epoch at hand; Lightning asks again each epoch, for epochs differ in length."""
        assert self.trainer is not None
        epoch = self._epoch
        position, start = self._position, 0
        if position["epoch"] == epoch:
            start = position["updates"]
        layout = self.trainer.global_rank, self.trainer.world_size, self.virtual_ranks, self.accumulate
        if isinstance(self.train, TrainingStream):
            self._stream = StreamLoader(
                self.train,
                max_tokens=self.batching.budget,
                share=share_of(*layout),
                window=self.virtual_ranks * self.accumulate,
                resampled=self.resampled,
                epoch=epoch,
                start=start,
                mark=Mark(*position.get("stream", ())) if start else Mark(),
                pin_memory=self._on_gpu,
            )
            return self._stream
        return TrainingLoader(
            self.train,
            self.tokenizers,
            plan=self.plan,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
            virtual_ranks=self.virtual_ranks,
            accumulate=self.accumulate,
            num_workers=self.batching.num_workers,
            resampled=self.resampled,
            pin_memory=self._on_gpu,
            epoch=epoch,
            start=start,
        )

    def val_dataloader(self) -> Any:
        return self._evaluation(self.validation)

    def test_dataloader(self) -> list[Any]:
        return [self._evaluation(data) for data in self.tests.values()]

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """A window is a list of micro-batches; each moves by itself."""
        if isinstance(batch, Batch):
            return batch.to(device, non_blocking=True)
        return [micro_batch.to(device, non_blocking=True) for micro_batch in batch]

    def state_dict(self) -> dict[str, Any]:
        """The position at an update boundary, from Lightning's count of the batches it has processed."""
        assert self.trainer is not None
        updates = self.trainer.fit_loop.epoch_loop.batch_progress.current.ready
        state = {"epoch": self._epoch, "updates": updates, "plan": self._plan_facts()}
        if self._stream is not None and updates in self._stream.marks:
            state["stream"] = list(self._stream.marks[updates])
        return state

    @cached_property
    def _lengths_hash(self) -> str | None:
        """Over the numbers of pieces, from which batches are cut; a stream's text hash tells them already."""
        if isinstance(self.train, TrainingStream):
            return None
        lengths = np.concatenate([self.train.source_lengths, self.train.target_lengths])
        return hashlib.sha256(lengths.tobytes()).hexdigest()

    def _plan_facts(self) -> dict[str, Any]:
        """What decides which sentences are in which update; a position means nothing under another plan."""
        return {
            "batching.max_tokens": self.batching.budget,
            "trainer.virtual_ranks": self.virtual_ranks,
            "trainer.accumulate": self.accumulate,
            "seed": self.seed,
            "data (sha256)": self.train.content_hash,
            "the pieces of the sentences": self._lengths_hash,
            "batching.shuffle_buffer": self.batching.shuffle_buffer,
            "data mixture": self.shares,
            "tokenizer.sampling": repr(self.resampled),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for key, value in self._plan_facts().items():
            if state_dict["plan"][key] != value:
                raise RunError(
                    f"resume: {key} was {state_dict['plan'][key]} and is now {value}, but a run keeps its batches; "
                    f"leave it as it was, or start a new run"
                )
        self._position = {key: state_dict[key] for key in ("epoch", "updates", "stream") if key in state_dict}

    @property
    def _on_gpu(self) -> bool:
        assert self.trainer is not None
        return self.trainer.strategy.root_device.type == "cuda"

    def _evaluation(self, data: EncodedPairs) -> Any:
        assert self.trainer is not None
        return evaluation_loader(
            data,
            self.tokenizers,
            max_tokens=self.batching.eval_max_tokens,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
        )
