"""The LightningDataModule: hands loaders to the trainer and keeps the position in training for a resume."""

from typing import Any

from lightning.pytorch import LightningDataModule

from crosslight.batches import Batch
from crosslight.data.batching import plan_epoch
from crosslight.data.cleaning import EncodedPairs
from crosslight.data.loaders import TrainingLoader, evaluation_loader
from crosslight.errors import RunError
from crosslight.tokenizers.base import Tokenizers


class TranslationData(LightningDataModule):
    """Loaders over encoded pairs. An update takes `accumulate * virtual_ranks` micro-batches of `max_tokens` each."""

    def __init__(
        self,
        *,
        train: EncodedPairs,
        validation: EncodedPairs,
        tests: dict[str, EncodedPairs],
        tokenizers: Tokenizers,
        max_tokens: int,
        eval_max_tokens: int,
        num_workers: int,
        seed: int,
        virtual_ranks: int,
        accumulate: int,
    ) -> None:
        super().__init__()
        self.train, self.validation, self.tests, self.tokenizers = train, validation, tests, tokenizers
        self.max_tokens, self.eval_max_tokens, self.num_workers = max_tokens, eval_max_tokens, num_workers
        self.seed, self.virtual_ranks, self.accumulate = seed, virtual_ranks, accumulate
        self._position = {"epoch": 0, "updates": 0}

    def plan(self, epoch: int) -> list[Any]:
        """The micro-batches of an epoch."""
        return plan_epoch(
            self.train.source.lengths, self.train.target.lengths, self.max_tokens, seed=self.seed, epoch=epoch
        )

    @property
    def _epoch(self) -> int:
        """How many epochs are over."""
        assert self.trainer is not None
        return self.trainer.current_epoch

    def train_dataloader(self) -> TrainingLoader:
        """A loader for the epoch at hand; Lightning asks again each epoch, for epochs differ in length."""
        assert self.trainer is not None
        epoch = self._epoch
        position, start = self._position, 0
        if position["epoch"] == epoch:
            start = position["updates"]
        return TrainingLoader(
            self.train,
            self.tokenizers,
            plan=self.plan,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
            virtual_ranks=self.virtual_ranks,
            accumulate=self.accumulate,
            num_workers=self.num_workers,
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
        loop = self.trainer.fit_loop
        return {
            "epoch": self._epoch,
            "updates": loop.epoch_loop.batch_progress.current.ready,
            "plan": self._plan_facts(),
        }

    def _plan_facts(self) -> dict[str, Any]:
        """What decides which sentences are in which update; a position means nothing under another plan."""
        return {
            "data.max_tokens": self.max_tokens,
            "trainer.virtual_ranks": self.virtual_ranks,
            "trainer.accumulate": self.accumulate,
            "seed": self.seed,
            "data (sha256)": self.train.pairs.content_hash,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for key, value in self._plan_facts().items():
            if state_dict["plan"][key] != value:
                raise RunError(
                    f"resume: {key} was {state_dict['plan'][key]} and is now {value}, but a run keeps its batches; "
                    f"leave it as it was, or start a new run"
                )
        self._position = {"epoch": state_dict["epoch"], "updates": state_dict["updates"]}

    @property
    def _on_gpu(self) -> bool:
        assert self.trainer is not None
        return self.trainer.strategy.root_device.type == "cuda"

    def _evaluation(self, data: EncodedPairs) -> Any:
        assert self.trainer is not None
        return evaluation_loader(
            data,
            self.tokenizers,
            max_tokens=self.eval_max_tokens,
            rank=self.trainer.global_rank,
            world=self.trainer.world_size,
        )
