"""`batching.max_tokens=auto`: what is measured, what follows from it, and that the run is the one with that number."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from texts import Text, numbers, recipe

from crosslight import app, build
from crosslight.config.compose import compose, plain
from crosslight.data.collate import Resampled, collate
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import encode_pairs
from crosslight.describing import describe
from crosslight.errors import ConfigError
from crosslight.inference import load_run
from crosslight.runs.budget import Budget, Shapes, _Trial, find_budget, growth_of, largest_budget, rounded, shapes_of
from crosslight.runs.folder import RunFolder
from crosslight.runs.record import read_record

SMALL = [
    "data=copy",
    "trainer=cpu",
    "trainer.threads=1",
    "expect=null",
    "logger=[]",
    "callbacks=[saver,best]",
    "model.d_model=16",
    "model.d_ff=24",
    "model.num_heads=2",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "model.dropout=0.1",
    "data.num_train=400",
    "data.num_validation=3",
    "data.num_test=2",
    "decode.max_len_extra=2",
    "trainer.max_steps=5",
    "trainer.val_check_interval=5",
]


def config(*overrides: str) -> dict[str, Any]:
    return plain(compose([*SMALL, *overrides]))


def trial_of(*overrides: str, symbols: int = 32) -> Any:
    """The task and the recipe of a config, as `find_budget` takes them."""
    settings, tokenizers = config(*overrides), numbers(symbols)
    trainer = build.build_trainer_recipe(settings)
    parts = {"model": build.build_model(settings, tokenizers), "search": build.build_search(settings)}
    return build.build_task(
        settings, tokenizers=tokenizers, recipe=trainer, test_langs={}, load_run=load_run, **parts
    ), trainer


class Memory:
    """A device that needs `fixed` bytes and `a_token` for each token, and has `size`; remembers what it was asked."""

    def __init__(self, size: float = math.inf, fixed: int = 1000, a_token: int = 7) -> None:
        self.size, self.fixed, self.a_token = size, fixed, a_token
        self.asked: list[tuple[int, int]] = []

    def __call__(self, rows: int, width: int) -> int:
        self.asked.append((rows, width))
        used = self.fixed + self.a_token * rows * width
        if used > self.size:
            raise torch.OutOfMemoryError("out of memory")
        return used


def test_two_sizes_tell_all_others() -> None:
    memory = Memory()
    assert largest_budget(memory, 1000 + 7 * 960, (60, 3), start=1, tried=False) == 960
    assert memory.asked == [(1, 60), (2, 60), (1, 3), (2, 3)]


def test_the_dearer_width_decides() -> None:
    def attention(rows: int, width: int) -> int:
        return rows * width * width

    assert largest_budget(attention, 10_000, (50, 2), start=1, tried=False) == 200
    assert largest_budget(attention, 10_000, (20, 2), start=1, tried=False) == 500


def test_what_is_tried_and_does_not_fit_is_halved_until_it_does() -> None:
    memory = Memory(size=1000 + 7 * 1500)
    assert largest_budget(memory, 1000 + 7 * 4000, (40, 2), start=80, tried=True) == 1000
    assert memory.asked[-2:] == [(25, 40), (500, 2)]


def test_a_first_trial_that_is_too_large_is_made_smaller() -> None:
    memory = Memory(size=1000 + 7 * 700)
    assert largest_budget(memory, 1000 + 7 * 640, (40, 2), start=4096, tried=True) == 640
    assert largest_budget(Memory(size=1100), 10**6, (40, 2), start=4096, tried=True) == 0


def test_growth_beyond_the_line_is_seen_by_the_try() -> None:
    def bent(rows: int, width: int) -> int:
        return rows * width * (1 if rows * width <= 500 else 2)

    assert largest_budget(bent, 800, (10, 10), start=100, tried=True) == 400


@pytest.mark.parametrize(
    ("tokens", "number"), [(31, 31), (33, 32), (12_345, 12_288), (12_799, 12_288), (65_535, 63_488)]
)
def test_the_number_is_round(tokens: int, number: int) -> None:
    assert rounded(tokens, 1) == number
    assert rounded(tokens, tokens - 1) == max(number, tokens - 1)


def test_a_real_model_needs_memory_in_proportion_to_rows_and_more_for_long_ones() -> None:
    task, trainer = trial_of()
    trial = _Trial(task, trainer, token=2)
    measured = [trial.measure(rows, 12) for rows in (2, 4, 6)]
    assert measured[2] - measured[1] == pytest.approx(measured[1] - measured[0], rel=0.05)
    assert measured[1] > measured[0]
    long, short = (trial.measure(48 // width, width) for width in (24, 3))
    assert long > short
    resident = sum(p.nbytes for p in task.parameters()) * 4  # weights, gradients, two moments of Adam
    # and what is kept once: joined weights of queries, keys and values, the gradient of the output projection
    assert resident < measured[0] - (measured[1] - measured[0]) < 1.2 * resident


def test_logits_count_where_an_objective_keeps_them() -> None:
    """Of a model with next to nothing else. Cross-entropy makes them a chunk at a time and keeps none."""

    def a_token(symbols: int, *overrides: str) -> float:
        task, trainer = trial_of("model.d_model=2", "model.num_heads=1", "model.d_ff=1", *overrides, symbols=symbols)
        trial = _Trial(task, trainer, token=2)
        return (trial.measure(20, 4) - trial.measure(10, 4)) / 40

    assert a_token(1032) == pytest.approx(a_token(32), rel=0.2)
    kept = a_token(1032, "task/objective=r_drop") - a_token(32, "task/objective=r_drop")
    assert kept > 2 * 1000 * 4  # two passes


def budget(limit: int, monkeypatch: pytest.MonkeyPatch, *overrides: str, tokens: int | None = None) -> Budget:
    monkeypatch.setattr("crosslight.runs.budget.memory_limit", lambda **_: limit)
    task, trainer = trial_of(*overrides)
    return find_budget(task, trainer, Shapes(22, 2, tokens), token=2)


def test_the_budget_grows_in_proportion_to_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    small, middle, large = (budget(n * 10**7, monkeypatch).max_tokens for n in (1, 2, 4))
    assert middle / small == pytest.approx(2, rel=0.1)
    assert large / small == pytest.approx(4, rel=0.1)
    assert budget(10**7, monkeypatch).because == "more would not fit into 0.01 GB a process"
    assert budget(10**7, monkeypatch, "trainer.virtual_ranks=40").max_tokens < small, "gradients of virtual ranks"


def test_an_epoch_keeps_fifty_updates_of_however_many_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    found = budget(10**9, monkeypatch, tokens=160_000)
    assert found == Budget(3200, "with more an epoch had fewer than 50 updates")
    assert budget(10**9, monkeypatch, "trainer.accumulate=2", tokens=160_000).max_tokens == 1600
    assert budget(10**9, monkeypatch, tokens=100).max_tokens == 22, "the longest pair fits"


def test_too_little_memory_for_the_longest_pair_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as error:
        budget(10_000, monkeypatch)
    assert str(error.value) == (
        "batching.max_tokens: auto finds room for 0 in 0.00 GB a process, but a pair may have 22 tokens; "
        "take a smaller model or cleaning.max_len, or fewer trainer.devices"
    )


def test_shapes_are_those_of_the_data() -> None:
    pairs = encode_pairs(Pairs("toy", ["1", "1 2 3", "4 5"], ["1 2", "3", ""]), numbers(9))
    assert shapes_of(pairs) == Shapes(longest=4, shortest=3, tokens=3 + 4 + 3)


def test_sampled_pieces_make_room_for_themselves(tmp_path: Path) -> None:
    text = [" ".join(["playing", "football", "street"][i % 3 :] * 2) for i in range(40)]
    small = recipe(tmp_path, vocab_size=40, hard_vocab_limit=False, sampling_alpha=0.3)
    tokenizers = small.fit(Text(text, text), [])
    data = encode_pairs(Pairs("toy", text, text), tokenizers)
    assert small.sampling is not None
    resampled = Resampled(small.sampling, 1, 200, frozenset())
    growth = growth_of(data, tokenizers, resampled)
    sampled = collate(data, np.arange(len(data)), tokenizers, epoch=0, index=0, resampled=resampled)
    assert growth >= sampled.source.numel() / (len(data) * int(data.source_lengths.max())) > 1


def run(path: Path, *overrides: str) -> tuple[dict[str, torch.Tensor], dict[str, Any], dict[str, Any]]:
    """Weights, record and config of a run in this process."""
    folder = RunFolder(path)
    app.train(config(f"cache={path.parent}", *overrides), folder)
    weights = torch.load(folder.at_update(5), weights_only=True)["state_dict"]
    return weights, read_record(folder.record), folder.read_config()


def test_a_run_is_the_one_with_the_number_given_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crosslight.runs.budget.memory_limit", lambda **_: 400_000)
    found, record, kept = run(tmp_path / "auto", "batching.max_tokens=auto")
    number = kept["batching"]["max_tokens"]
    assert number == record["max_tokens"] == record["budget"]["max_tokens"]
    assert 22 < number < 92, "between the longest pair and 50 updates an epoch"
    assert record["budget"]["because"].startswith("more would not fit")
    monkeypatch.setattr("crosslight.runs.budget.memory_limit", lambda **_: pytest.fail("nothing to be measured"))
    expected, record, _ = run(tmp_path / "by hand", f"batching.max_tokens={number}")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    assert "budget" not in record


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("batching.max_tokens=most", "batching.max_tokens: 'most' is not a whole number or one of 'auto'"),
        ("batching.eval_max_tokens=auto", "batching.eval_max_tokens: 'auto' is not a whole number"),
        ("trainer.strategy=fsdp batching.max_tokens=auto", "batching.max_tokens: auto measures a whole model on one"),
        (
            "trainer.num_nodes=2 batching.max_tokens=auto",
            "batching.max_tokens: auto measures a whole model on one machi",
        ),
    ],
)
def test_where_nothing_can_be_measured_a_sentence_says_so(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        build.check(config(*override.split()))
    assert str(error.value).startswith(message)


def test_batches_of_a_size_that_is_not_known_yet_are_not_described() -> None:
    with pytest.raises(
        ConfigError, match=r"batching\.max_tokens: auto is known only where a model is about to be trained"
    ):
        describe(config("batching.max_tokens=auto"))
