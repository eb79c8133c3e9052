"""The data module on two ranks, as Lightning asks it each epoch (cases D01 and D02)."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from texts import numbers

from crosslight.batches import Batch
from crosslight.data.batching import Batching
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import EncodedPairs, encode_pairs
from crosslight.data.module import TranslationData

TOKENIZERS = numbers(50)


def pairs(lengths: list[int]) -> EncodedPairs:
    texts = [" ".join([str(number % 50)] * length) for number, length in enumerate(lengths)]
    return encode_pairs(Pairs("toy", texts, texts), TOKENIZERS)


def module(rank: int, train: EncodedPairs, validation: EncodedPairs, max_tokens: int) -> Any:
    data: Any = TranslationData(
        train=train,
        validation=validation,
        tests={},
        tokenizers=TOKENIZERS,
        batching=Batching(max_tokens=max_tokens, eval_max_tokens=max_tokens, num_workers=0, shuffle_buffer=None),
        shares=None,
        resampled=None,
        seed=1,
        virtual_ranks=2,
        accumulate=1,
    )
    device = SimpleNamespace(root_device=SimpleNamespace(type="cpu"))
    data.trainer = SimpleNamespace(global_rank=rank, world_size=2, current_epoch=0, strategy=device)
    return data


def steps(data: Any, epoch: int) -> list[list[Batch]]:
    """The windows of one rank in an epoch."""
    data.trainer.current_epoch = epoch
    return list(data.train_dataloader())


def ids(windows: list[list[Batch]]) -> list[tuple[int, ...]]:
    return [batch.sentence_ids for window in windows for batch in window]


def test_two_ranks_share_each_epoch_among_them_in_another_order_each_time() -> None:
    train = pairs([int(n) for n in np.random.default_rng(2).integers(1, 15, 40)])
    orders = []
    for _ in range(2):
        ranks = [module(rank, train, pairs([3]), 64) for rank in (0, 1)]
        for epoch in (0, 1):
            here, there = (steps(data, epoch) for data in ranks)
            mine, others = ({i for batch in ids(windows) for i in batch} for windows in (here, there))
            assert not mine & others
            assert mine | others == set(range(40))
            assert len(here) == len(there) > 2
            for batch in (batch for window in (*here, *there) for batch in window):
                assert batch.source.numel() <= 64
                assert batch.target_out.numel() <= 64
            orders.append((ids(here), ids(there)))
    assert orders[0] != orders[1], "the second epoch is another one"
    assert orders[:2] == orders[2:], "and both are the same again"


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_seven_batches_are_four_updates_on_both_ranks_and_lose_nothing(epoch: int) -> None:
    ranks = [module(rank, pairs([5] * 70), pairs([5] * 25), 60) for rank in (0, 1)]
    here, there = (steps(data, epoch) for data in ranks)
    assert [len(batch) for batch in ids(here)] == [10] * 4
    assert [len(batch) for batch in ids(there)] == [10, 10, 10, 0], "the last is a placeholder"
    assert sorted(i for batch in ids(here) + ids(there) for i in batch) == list(range(70))


def test_three_batches_of_validation_are_two_on_both_ranks_and_lose_nothing() -> None:
    ranks = [module(rank, pairs([5]), pairs([5] * 25), 60) for rank in (0, 1)]
    here, there = ([batch.sentence_ids for batch in data.val_dataloader()] for data in ranks)
    assert [len(batch) for batch in here] == [10, 5]
    assert [len(batch) for batch in there] == [10, 0]
    assert sorted(i for batch in here + there for i in batch) == list(range(25))
