"""Learning rates as functions of the update: exact values, warm-ups of any length, and what is refused."""

import itertools
import math

import pytest

from crosslight.errors import ConfigError
from crosslight.optim.schedules import Constant, Cosine, InverseSquareRoot, Noam

PEAK = 3e-4
UPDATES = range(1, 41)


def kinds(warmup_steps: int) -> dict:
    return {
        "noam": Noam(d_model=64, warmup_steps=warmup_steps, factor=2.0),
        "inverse_sqrt": InverseSquareRoot(warmup_steps=warmup_steps),
        "cosine": Cosine(warmup_steps=warmup_steps, total_steps=40, floor=0.1),
        "constant": Constant(warmup_steps=warmup_steps),
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


@pytest.mark.parametrize("name", ["noam", "inverse_sqrt", "cosine", "constant"])
def test_rate_rises_in_equal_steps_from_the_first_update_to_the_peak_at_the_warm_up_end(name):  # F06
    schedule = kinds(10)[name]
    rates = [schedule(update, PEAK) for update in UPDATES]
    peak = 2 * 64**-0.5 * 10**-0.5 if name == "noam" else PEAK
    for update in range(1, 11):
        assert rates[update - 1] == pytest.approx(peak * update / 10, rel=1e-9)
    assert max(rates) == pytest.approx(peak, rel=1e-9)
    if name == "constant":
        assert set(rates[9:]) == {PEAK}
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
    ],
)
def test_rate_after_the_warm_up_has_its_exact_value(name, update, rate):
    assert kinds(10)[name](update, PEAK) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize("warmup_steps", [0, 1])
@pytest.mark.parametrize("name", ["noam", "inverse_sqrt", "cosine", "constant"])
def test_without_a_warm_up_the_first_update_is_the_highest(name, warmup_steps):  # F07
    schedule = kinds(warmup_steps)[name]
    rates = [schedule(update, PEAK) for update in UPDATES]
    assert rates[0] == max(rates) > 0
    if name in ("noam", "inverse_sqrt"):
        for update, rate in zip(UPDATES, rates, strict=True):
            assert rate == pytest.approx(rates[0] * update**-0.5, rel=1e-9)
    peak = 2 * 64**-0.5 if name == "noam" else PEAK
    assert rates[0] == pytest.approx(peak, rel=2e-3)


def test_impossible_steps_are_refused_by_name():
    for make in (
        lambda: Noam(d_model=64, warmup_steps=-1, factor=1.0),
        lambda: InverseSquareRoot(warmup_steps=-1),
        lambda: Cosine(warmup_steps=-1, total_steps=9, floor=0.0),
        lambda: Constant(warmup_steps=-1),
    ):
        with pytest.raises(ConfigError, match=r"scheduler\.warmup_steps: -1 is negative"):
            make()


@pytest.mark.parametrize("total_steps", [3, 10])
def test_cosine_of_a_run_that_ends_within_its_warm_up_only_rises_and_is_at_the_floor_beyond(total_steps):
    schedule = Cosine(warmup_steps=10, total_steps=total_steps, floor=0.1)
    assert [schedule(update, 1.0) for update in (1, 3, 10, 11, 12)] == pytest.approx([0.1, 0.3, 1.0, 0.1, 0.1])
