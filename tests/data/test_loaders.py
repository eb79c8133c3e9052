"""Loaders: padded batches, the same windows for any number of processes and workers, exact continuation."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest
import torch
from texts import numbers

from crosslight.batches import Batch
from crosslight.data.batching import plan_epoch
from crosslight.data.collate import collate
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import encode_pairs
from crosslight.data.loaders import TrainingLoader, evaluation_loader, share_of
from crosslight.tokenizers.integers import BOS, EOS, PAD

TOKENIZERS = numbers(50)


def data(count: int):
    rng = np.random.default_rng(3)
    texts = [" ".join(map(str, rng.integers(0, 50, n))) for n in rng.integers(1, 12, 2 * count)]
    return encode_pairs(Pairs("toy", texts[:count], texts[count:]), TOKENIZERS)


DATA = data(83)


def loader(**changed: int) -> TrainingLoader:
    settings = {"rank": 0, "world": 1, "virtual_ranks": 4, "accumulate": 3, "num_workers": 0, "epoch": 0, "start": 0}
    lengths = DATA.source_lengths, DATA.target_lengths
    return TrainingLoader(
        DATA,
        TOKENIZERS,
        plan=lambda epoch: plan_epoch(*lengths, 15, seed=5, epoch=epoch),
        pin_memory=False,
        **{**settings, **changed},
    )


def content(batch: Batch) -> tuple:
    tensors = (batch.source.tolist(), batch.target_in.tolist(), batch.target_out.tolist())
    return batch.epoch, batch.index, batch.sentence_ids, batch.references, tensors


def windows(batches: Sequence[list[Batch]]) -> list[list[tuple]]:
    return [[content(batch) for batch in window] for window in batches]


def test_collate_pads_on_the_right_and_shifts_the_target() -> None:
    pairs = encode_pairs(Pairs("toy", ["7", "0 1 2", "9 9"], ["4 5 6 8", "3", ""]), TOKENIZERS)
    batch = collate(pairs, np.array([2, 0]), TOKENIZERS, epoch=3, index=8)
    assert batch.source.tolist() == [[12, 12, EOS], [10, EOS, PAD]]
    assert batch.target_in.tolist() == [[BOS, PAD, PAD, PAD, PAD], [BOS, 7, 8, 9, 11]]
    assert batch.target_out.tolist() == [[EOS, PAD, PAD, PAD, PAD], [7, 8, 9, 11, EOS]]
    assert (batch.sentence_ids, batch.references, batch.epoch, batch.index) == ((2, 0), ("", "4 5 6 8"), 3, 8)
    assert batch.source.dtype == torch.int64


def test_a_placeholder_is_one_row_without_a_target_and_a_sentence() -> None:
    batch = collate(DATA, np.empty(0, np.int64), TOKENIZERS, epoch=1, index=2)
    assert content(batch) == (1, 2, (), (), ([[EOS]], [[PAD]], [[PAD]]))


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_shares_of_all_processes_make_up_the_window(world: int, accumulate: int) -> None:
    shares = [share_of(rank, world, 4, accumulate) for rank in range(world)]
    assert sorted(k for share in shares for k in share) == list(range(4 * accumulate))
    assert len({len(share) for share in shares}) == 1
    # concatenated in rank order they are virtual rank 0's micro-batches, then 1's, …, whatever the number of processes
    assert [k for share in shares for k in share] == [a * 4 + v for v in range(4) for a in range(accumulate)]


@pytest.mark.parametrize("world", [2, 4])
def test_any_number_of_processes_sees_the_same_windows(world: int) -> None:
    alone = windows(list(loader()))
    ranks = [windows(list(loader(world=world, rank=rank))) for rank in range(world)]
    assert [list(chain(*parts)) for parts in zip(*ranks, strict=True)] == alone


def test_one_epoch_holds_every_sentence_once_and_numbers_its_batches() -> None:
    passed = list(loader())
    assert len(passed) == len(loader()) > 2
    assert sorted(i for window in passed for batch in window for i in batch.sentence_ids) == list(range(83))
    assert sorted(batch.index for window in passed for batch in window) == list(range(12 * len(passed)))
    assert any(not batch.sentence_ids for batch in passed[-1]), "the last window is filled up with placeholders"
    for batch in (batch for window in passed for batch in window):
        for row, i in enumerate(batch.sentence_ids):
            assert batch.target_out[row][: len(DATA.target[i])].tolist() == DATA.target[i].tolist()
            assert batch.references[row] == DATA.target_text[i]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_start_continues_exactly_and_workers_change_nothing(num_workers: int) -> None:
    """One loader over two epochs, as Lightning drives it, against unbroken passes in line."""
    unbroken = [windows(list(loader(epoch=epoch))) for epoch in (4, 5)]
    assert unbroken[0] != unbroken[1]
    resumed = loader(epoch=4, start=2, num_workers=num_workers)
    assert len(resumed) == len(unbroken[0]), "the length is the epoch's, wherever it starts"
    assert windows(list(resumed)) == unbroken[0][2:]
    resumed.sampler.set_epoch(4)
    assert windows(list(resumed)) == unbroken[0][2:], "the same epoch again is no new epoch"
    resumed.sampler.set_epoch(5)
    assert windows(list(resumed)) == unbroken[1]
    assert len(resumed) == len(unbroken[1])


def test_epoch_and_start_may_be_set_after_iter() -> None:
    late = loader()
    iterator = iter(late)
    late.epoch, late.start = 4, 1
    assert windows(list(iterator)) == windows(list(loader(epoch=4)))[1:]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 7, 40])
def test_evaluation_gives_each_sentence_to_exactly_one_process(world: int, count: int) -> None:
    """Case I04: no sentence is repeated to even out processes, and yet all have equally many batches."""
    few = data(count)
    ranks = [list(evaluation_loader(few, TOKENIZERS, max_tokens=25, rank=rank, world=world)) for rank in range(world)]
    assert sorted(i for batches in ranks for batch in batches for i in batch.sentence_ids) == list(range(count))
    assert len({len(batches) for batches in ranks}) == 1
    batches = [batch for batches in ranks for batch in batches]
    assert all(batch.source.numel() <= 25 for batch in batches)
    assert len({batch.index for batch in batches}) == len(batches)
    assert sum(not batch.sentence_ids for batch in batches) < world


def test_one_sentence_above_the_budget_is_evaluated_in_a_batch_of_its_own() -> None:
    """Case D04: validation loses nothing, and what is short still comes together."""
    texts = ["1", " ".join(["2"] * 60), "3 3", "4"]
    batches = list(evaluation_loader(encode_pairs(Pairs("toy", texts, texts), TOKENIZERS), TOKENIZERS, max_tokens=50))
    assert [batch.sentence_ids for batch in batches] == [(1,), (2, 0, 3)]
    assert batches[0].source.shape == batches[0].target_out.shape == (1, 61)


def test_long_references_of_short_sources_keep_the_budget_of_evaluation() -> None:
    """The loss on a validation set scores its references, so their padding needs memory, too."""
    texts = ["1"] * 40
    references = [" ".join(["2"] * (24 if number % 8 == 0 else 1)) for number in range(40)]
    pairs = encode_pairs(Pairs("toy", texts, references), TOKENIZERS)
    batches = list(evaluation_loader(pairs, TOKENIZERS, max_tokens=50))
    assert sorted(i for batch in batches for i in batch.sentence_ids) == list(range(40))
    assert max(batch.target_out.numel() for batch in batches) <= 50
