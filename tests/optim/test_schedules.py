"""Learning rates as functions of the update: exact values, warm-ups of any length, and what is refused."""

import itertools
import math

import pytest

from crosslight.errors import ConfigError
from crosslight.optim.schedules import Constant, Cosine, InverseSquareRoot, Noam, WarmupStableDecay

PEAK = 3e-4
UPDATES = range(1, 41)


def kinds(warmup_steps: int) -> dict:
    return {
        "noam": Noam(d_model=64, warmup_steps=warmup_steps, factor=2.0),
        "inverse_sqrt": InverseSquareRoot(warmup_steps=warmup_steps),
        "cosine": Cosine(warmup_steps=warmup_steps, total_steps=40, floor=0.1),
        "constant": Constant(warmup_steps=warmup_steps),
        "wsd": WarmupStableDecay(warmup_steps=warmup_steps, total_steps=40, decay_steps=16, floor=0.1),
    }


def test_noam_has_the_numbers_of_the_paper():  # F07
    noam = Noam(d_model=512, warmup_steps=4000, factor=1.0)
    for update, rate in [(1, 1.747e-7), (2, 3.494e-7), (4000, 6.988e-4)]:
        assert noam(update, PEAK) == pytest.approx(rate, rel=5e-4)
    assert noam(4000, PEAK) == max(noam(update, PEAK) for update in range(1, 8001))
    assert noam(4001, PEAK) == pytest.approx(512**-0.5 * 4001**-0.5, rel=1e-12)
    assert noam(16000, PEAK) == pytest.approx(noam(4000, PEAK) / 2, rel=1e-12)
    assert Noam(d_model=512, warmup_steps=4000, factor=3.0)(77, PEAK) == pytest.approx(3 * noam(77, PEAK), rel=1e-12)
    assert noam(77, 1.0) == noam(77, PEAK)


@pytest.mark.parametrize("name", ["noam", "inverse_sqrt", "cosine", "constant", "wsd"])
def test_rate_rises_in_equal_steps_from_the_first_update_to_the_peak_at_the_warm_up_end(name):  # F06
    schedule = kinds(10)[name]
    rates = [schedule(update, PEAK) for update in UPDATES]
    peak = 2 * 64**-0.5 * 10**-0.5 if name == "noam" else PEAK
    for update in range(1, 11):
        assert rates[update - 1] == pytest.approx(peak * update / 10, rel=1e-9)
    assert max(rates) == pytest.approx(peak, rel=1e-9)
    if name in ("constant", "wsd"):
        assert set(rates[9:] if name == "constant" else rates[9:24]) == {PEAK}
    else:
        assert all(later < earlier for earlier, later in itertools.pairwise(rates[9:]))
    assert rates == [kinds(10)[name](update, PEAK) for update in UPDATES]  # no memory of earlier calls


@pytest.mark.parametrize(
    ("name", "update", "rate"),
    [
        ("inverse_sqrt", 40, PEAK / 2),
        ("inverse_sqrt", 1000, PEAK / 10),
        ("cosine", 25, PEAK * (0.1 + 0.9 / 2)),
        ("cosine", 20, PEAK * (0.1 + 0.9 * (1 + math.cos(math.pi / 3)) / 2)),
        ("cosine", 40, PEAK * 0.1),
        ("cosine", 500, PEAK * 0.1),
        ("constant", 500, PEAK),
        ("wsd", 24, PEAK),
        ("wsd", 28, PEAK * (0.1 + 0.9 / 2)),  # a quarter of the decay is over, and its root is a half
        ("wsd", 33, PEAK * (0.1 + 0.9 * 0.25)),
        ("wsd", 40, PEAK * 0.1),
        ("wsd", 500, PEAK * 0.1),
    ],
)
def test_rate_after_the_warm_up_has_its_exact_value(name, update, rate):
    assert kinds(10)[name](update, PEAK) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize("warmup_steps", [0, 1])
@pytest.mark.parametrize("name", ["noam", "inverse_sqrt", "cosine", "constant", "wsd"])
def test_without_a_warm_up_the_first_update_is_the_highest(name, warmup_steps):  # F07
    schedule = kinds(warmup_steps)[name]
    rates = [schedule(update, PEAK) for update in UPDATES]
    assert rates[0] == max(rates) > 0
    if name in ("noam", "inverse_sqrt"):
        for update, rate in zip(UPDATES, rates, strict=True):
            assert rate == pytest.approx(rates[0] * update**-0.5, rel=1e-9)
    peak = 2 * 64**-0.5 if name == "noam" else PEAK
    assert rates[0] == pytest.approx(peak, rel=2e-3)


NOAM = {"d_model": 64, "warmup_steps": 0, "factor": 1.0}
COSINE = {"warmup_steps": 0, "total_steps": 9, "floor": 0.0}


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (Noam, NOAM | {"warmup_steps": -1}, "warmup_steps: -1 is negative; 0 is no warm-up"),
        (InverseSquareRoot, {"warmup_steps": -1}, "warmup_steps: -1 is negative; 0 is no warm-up"),
        (Cosine, COSINE | {"warmup_steps": -1}, "warmup_steps: -1 is negative; 0 is no warm-up"),
        (Constant, {"warmup_steps": -1}, "warmup_steps: -1 is negative; 0 is no warm-up"),
        (WarmupStableDecay, COSINE | {"warmup_steps": -1, "decay_steps": 2}, "warmup_steps: -1 is negative"),
        (Noam, NOAM | {"factor": 0.0}, "factor: 0.0 gives no rate to train with; the paper's is 1"),
        (Noam, NOAM | {"factor": math.nan}, "factor: nan gives no rate"),
        (Noam, NOAM | {"d_model": 0}, "d_model: 0 is less than 1; give that of the model"),
        (Cosine, COSINE | {"floor": 1.5}, "floor: 1.5 is no share of optimizer.lr; give a number from 0 to 1"),
        (Cosine, COSINE | {"floor": math.nan}, "floor: nan is no share"),
        (WarmupStableDecay, COSINE | {"decay_steps": 2, "floor": -0.1}, "floor: -0.1 is no share"),
        (
            WarmupStableDecay,
            COSINE | {"decay_steps": -1},
            "decay_steps: -1 is not within scheduler.total_steps=9; a fi",
        ),
        (WarmupStableDecay, COSINE | {"decay_steps": 10}, "decay_steps: 10 is not within scheduler.total_steps=9"),
    ],
)
def test_impossible_settings_are_refused_by_name(kind, settings, message):
    with pytest.raises(ConfigError) as error:
        kind(**settings)
    assert str(error.value).startswith(f"scheduler.{message}")


def test_without_a_decay_the_stable_rate_stays():
    schedule = WarmupStableDecay(warmup_steps=4, total_steps=9, decay_steps=0, floor=0.0)
    assert [schedule(update, 1.0) for update in (1, 2, 4, 9, 10)] == [0.25, 0.5, 1.0, 1.0, 1.0]


def test_a_warm_up_that_reaches_into_the_decay_is_cut_by_it():
    schedule = WarmupStableDecay(warmup_steps=100, total_steps=10, decay_steps=4, floor=0.0)
    rates = [schedule(update, 1.0) for update in range(1, 11)]
    assert rates[:9] == pytest.approx([update / 100 for update in range(1, 10)])
    assert rates[9] == 0.0


def test_the_end_of_a_stable_run_can_be_moved_without_changing_what_was_done():
    short, long = (WarmupStableDecay(warmup_steps=4, total_steps=n, decay_steps=6, floor=0.0) for n in (20, 50))
    assert [short(update, PEAK) for update in range(1, 15)] == [long(update, PEAK) for update in range(1, 15)]
    assert short(20, PEAK) == 0.0
    assert long(20, PEAK) == PEAK


@pytest.mark.parametrize("total_steps", [3, 10])
def test_cosine_of_a_run_that_ends_within_its_warm_up_only_rises_and_is_at_the_floor_beyond(total_steps):
    schedule = Cosine(warmup_steps=10, total_steps=total_steps, floor=0.1)
    assert [schedule(update, 1.0) for update in (1, 3, 10, 11, 12)] == pytest.approx([0.1, 0.3, 1.0, 0.1, 0.1])
