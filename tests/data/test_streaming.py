"""Training on a stream: every pair once an epoch, shuffled by seed, the same on any number of processes, resumable."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import SMALL, Command
from texts import numbers

from crosslight.batches import Batch
from crosslight.data.cleaning import Cleaning
from crosslight.data.collate import Resampled
from crosslight.data.corpus import Pairs, Part
from crosslight.data.leaks import LeakGuard
from crosslight.data.loaders import share_of
from crosslight.data.streaming import Mark, StreamLoader, TrainingStream
from crosslight.data.training_text import TrainingText
from crosslight.errors import DataError
from crosslight.tokenizers.base import Sampling

TOKENIZERS = numbers(50)
CLEANING = Cleaning(
    max_len=8,
    over_long="drop",
    max_ratio=None,
    drop_identical=False,
    drop_duplicates=False,
    drop_control_characters=False,
    drop_wrong_script=False,
)


@dataclass
class Source:
    """Pairs in chunks of ten; counts the chunks that were read."""

    name: str
    pairs: list[tuple[str, str]]
    read: list[int] = field(default_factory=list)

    def fingerprint(self) -> str:
        return repr(self.pairs)

    def chunks(self) -> Iterator[pa.RecordBatch]:
        for start in range(0, len(self.pairs), 10):
            self.read.append(start)
            yield from Pairs(self.name, *zip(*self.pairs[start : start + 10], strict=True)).chunks()


def source(name: str, count: int, seed: int = 0) -> Source:
    """Pairs that are all different: the first two symbols number them."""
    rng = np.random.default_rng(seed)
    tails = [" ".join(map(str, rng.integers(0, 50, size))) for size in rng.integers(1, 6, count)]
    return Source(name, [(f"{i // 50} {i % 50} {tail}", f"{i % 50} {tail}") for i, tail in enumerate(tails)])


def stream(*sources: Source, buffer: int = 40, seed: int = 5, guard: LeakGuard | None = None, leaks: str = "ignore"):
    text = TrainingText([Part(each.name, each, "x", "x") for each in sources], CLEANING)
    return TrainingStream(text, TOKENIZERS, guard, leaks=leaks, buffer=buffer, seed=seed)


def loader(training: TrainingStream, *, epoch: int = 0, start: int = 0, mark: Mark | None = None, **layout: Any):
    place = {"rank": 0, "world": 1, "virtual_ranks": 2, "accumulate": 3, **layout}
    resampled = Resampled(Sampling(0.1, -1), 1, 8, frozenset())
    return StreamLoader(
        training,
        max_tokens=30,
        share=share_of(**place),
        window=6,
        resampled=resampled,
        epoch=epoch,
        start=start,
        mark=mark or Mark(),
    )


def content(batch: Batch) -> tuple:
    return (
        batch.epoch,
        batch.index,
        batch.sentence_ids,
        batch.references,
        batch.source.tolist(),
        batch.target_out.tolist(),
    )


def texts(windows: list[list[Batch]]) -> list[str]:
    return [text for window in windows for batch in window for text in batch.references]


@pytest.mark.parametrize("buffer", [1, 7, 40, 123, 5000])
def test_every_pair_comes_once_an_epoch_whatever_the_buffer(buffer: int) -> None:
    one, two = source("one", 123), source("two", 61, seed=9)
    training = stream(one, two, buffer=buffer)
    for epoch in range(2):
        windows = list(loader(training, epoch=epoch))
        assert Counter(texts(windows)) == Counter(target for each in (one, two) for _, target in each.pairs)
        names = [name for window in windows for batch in window for name in batch.sentence_ids]
        assert len(set(names)) == len(names) == 184
        assert all(len(window) == 6 for window in windows), "the last window is filled up with placeholders"
        assert sorted(batch.index for window in windows for batch in window) == list(range(6 * len(windows)))
        assert training.report["read"] == training.report["kept"] == 184


def test_a_sentence_keeps_its_name_in_every_epoch_and_buffer() -> None:
    def named(training: TrainingStream, epoch: int) -> dict[int, str]:
        batches = [batch for window in loader(training, epoch=epoch) for batch in window]
        return {n: t for batch in batches for n, t in zip(batch.sentence_ids, batch.references, strict=True)}

    one, two = source("one", 83), source("two", 31, seed=9)
    assert named(stream(one, two), 0) == named(stream(one, two), 1) == named(stream(one, two, buffer=9, seed=3), 4)


def test_the_order_is_a_function_of_seed_and_epoch_and_far_from_that_of_the_file() -> None:
    text = source("one", 1000)

    def order(seed: int, epoch: int) -> list[str]:
        return texts(list(loader(stream(text, buffer=300, seed=seed), epoch=epoch)))

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(*which)) for which in [(1, 2), (1, 3), (2, 2), (2, 1)]}) == 4
    place = {target: row for row, (_, target) in enumerate(text.pairs)}
    moved = [abs(now - place[target]) for now, target in enumerate(order(1, 2))]
    assert np.median(moved) > 60


@pytest.mark.parametrize("world", [1, 2])
def test_a_resume_at_any_window_gives_the_rest_to_the_last_token(world: int) -> None:
    text = source("one", 300)
    whole = loader(stream(text))
    marks, windows = {}, []
    for window in whole:
        windows.append([content(batch) for batch in window])
        marks.update(whole.marks)
    assert len(windows) > 6
    for start in range(len(windows) + 1):
        rests = [
            list(loader(stream(text), start=start, mark=marks[start], rank=rank, world=world)) for rank in range(world)
        ]
        together = [[content(b) for part in parts for b in part] for parts in zip(*rests, strict=True)]
        assert together == windows[start:]


def test_the_marks_of_the_windows_that_were_fetched_ahead_are_kept() -> None:
    training = loader(stream(source("one", 300)))
    fetched = iter(training)
    list(islice(fetched, 5))
    assert {2, 3, 4, 5} <= set(training.marks)


def test_no_more_is_read_than_the_buffer_asks_for() -> None:
    text = source("one", 2000)
    next(iter(loader(stream(text, buffer=50))))
    assert len(text.read) < 25, "a round and the one that is made ahead"


def test_unfit_pairs_leave_and_are_counted_at_the_end_of_the_epoch() -> None:
    text = source("one", 40)
    text.pairs[3:3] = [("", "1"), ("1 " * 9, "2"), ("3", "")]
    training = stream(text, buffer=10)
    assert len(texts(list(loader(training)))) == 40
    assert training.report["read"] == 43
    assert (training.report["left_out"]["empty"], training.report["left_out"]["too long"]) == (2, 1)


def test_leaks_are_found_in_a_stream_too() -> None:
    text = source("one", 40)
    guard = LeakGuard({"test": Pairs("test", [text.pairs[17][0]], ["7 7 7 7 7"])})
    with pytest.raises(DataError, match="1 training pairs share a side"):
        list(loader(stream(text, guard=guard, leaks="error")))
    assert len(texts(list(loader(stream(text, guard=guard, leaks="drop"))))) == 39


def test_a_leak_is_refused_before_its_round_is_trained_on_and_unknown_before() -> None:
    text = source("one", 400)
    guard = LeakGuard({"test": Pairs("test", [text.pairs[3][0]], ["7 7 7 7 7"])})
    training = stream(text, guard=guard, leaks="error", buffer=1000)
    assert training.report["leaks"] is training.report["kept"] is None
    with pytest.raises(DataError, match="1 training pairs share a side"):
        next(iter(loader(training)))


def test_a_stream_that_keeps_no_pair_ends_with_a_sentence() -> None:
    text = source("one", 30)
    text.pairs[:] = [("1 " * 9, "2")] * 30
    with pytest.raises(DataError, match=r"one: no training pair is left of 30 \(30 too long\)"):
        list(loader(stream(text)))


def test_a_stopped_run_on_a_stream_goes_on_as_if_it_had_not_been(command: Command, tmp_path: Path) -> None:
    options = [*SMALL, "model.dropout=0.1", "batching.shuffle_buffer=90", "batching.max_tokens=300"]
    options += [
        "trainer.max_epochs=2",
        "trainer.max_steps=1000",
        "trainer.val_check_interval=7",
        "logger=null",
        "scheduler=constant",
    ]
    command("train.py", *options, "hydra.run.dir=whole", cwd=tmp_path)
    command("train.py", *options, "trainer.max_steps=10", "hydra.run.dir=parts", cwd=tmp_path)
    command("train.py", "resume=parts", "trainer.max_steps=1000", cwd=tmp_path)
    import torch

    last = [
        max((tmp_path / run / "checkpoints").glob("update=*.ckpt"), key=lambda p: int(p.stem[7:]))
        for run in ("whole", "parts")
    ]
    assert last[0].name == last[1].name
    whole, parts = (torch.load(path, weights_only=True)["state_dict"] for path in last)
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
