"""The learning rate as text, page and picture: training's own rates, lines and marks in place."""

import re
from dataclasses import replace
from typing import Any

import pytest

from crosslight.build import make
from crosslight.config.compose import compose, plain
from crosslight.description.plots import PICTURES
from crosslight.description.schedules import Curve, as_html, as_picture, as_text, table
from crosslight.errors import ConfigError
from crosslight.rates import describe_schedule


def config(name: str, *overrides: str) -> dict[str, Any]:
    return plain(compose([f"scheduler={name}", "trainer.max_steps=2000", "scheduler.warmup_steps=300", *overrides]))


@pytest.fixture(scope="module")
def curves() -> list[Curve]:
    return [describe_schedule(config(name, "optimizer.lr=1e-3"), name) for name in ("cosine", "wsd", "noam")]


def test_the_rates_are_those_that_training_takes(curves: list[Curve]) -> None:
    for curve in curves:
        schedule = make(config(curve.name)["scheduler"])
        assert [curve.rate(update) for update in (1, 7, 300, 999, 2000)] == [
            schedule(update, 1e-3) for update in (1, 7, 300, 999, 2000)
        ]


def test_the_table_has_the_updates_at_which_a_schedule_turns(curves: list[Curve]) -> None:
    rows = [re.split(r"  +", line.strip()) for line in as_text(curves).splitlines()[2:]]
    assert [row[:2] for row in rows] == [
        ["1", "first"],
        ["300", "end of warm-up"],
        ["1,000", "middle"],
        ["1,600", "start of decay"],
        ["2,000", "end"],
    ]
    assert [float(cell) for cell in rows[1][2:]] == [1e-3, 1e-3, pytest.approx(128**-0.5 * 300**-0.5, rel=1e-3)]
    assert [float(cell) for cell in rows[4][2:4]] == [0.0, 0.0]


def test_the_plot_has_a_line_each_and_marks_the_end_of_the_warm_up(curves: list[Curve]) -> None:
    html = as_html(curves)
    for text in ("cosine", "wsd", "noam", "end of warm-up, 300", "update", "learning rate"):
        assert f">{text}</text>" in html
    assert "<td>1.000e-03</td>" in html
    assert "#0102" not in html, "a colour of the page was forgotten"


def test_schedules_of_far_apart_peaks_share_a_logarithmic_axis(curves: list[Curve]) -> None:
    cosine = curves[0]

    def logarithmic(factor: float) -> bool:
        return "mathdefault{10^{-3}}" in as_html([cosine, replace(cosine, rate=lambda u: factor * cosine.rate(u))])

    assert not logarithmic(2)
    assert logarithmic(1000)


@pytest.mark.parametrize("suffix", PICTURES)
def test_the_picture_alone_is_of_the_kind_that_its_name_says(curves: list[Curve], suffix: str) -> None:
    content = as_picture(curves[:2], suffix)
    assert {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<svg"}[suffix] in content[:2000]
    assert b"#010204" not in content


def test_a_warm_up_beyond_the_end_is_said_and_not_marked() -> None:
    curve = describe_schedule(config("wsd", "scheduler.warmup_steps=3000"), "wsd")
    assert "wsd: the warm-up of 3,000 updates is longer than the run of 2,000." in as_text([curve])
    assert [row[1] for row in table([curve]).rows] == ["first", "middle", "start of decay", "end"]
    assert "end of warm-up" not in as_html([curve])


def test_a_run_of_one_update_has_a_plot() -> None:
    curve = describe_schedule(config("inverse_sqrt", "trainer.max_steps=1"), "inverse_sqrt")
    assert [row[:2] for row in table([curve]).rows] == [["1", "end"]]
    assert as_picture([curve], ".png")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("optimizer.lr=abc", "optimizer.lr: 'abc' is no rate to train with"),
        ("optimizer.lr=-1", "optimizer.lr: -1 is no rate to train with; a usual one is 1e-3"),
        ("trainer.max_steps=0", "trainer.max_steps: 0 is no number of updates from 1 on"),
        ("trainer.max_steps=a", "trainer.max_steps: 'a' is no number of updates from 1 on"),
        ("scheduler.flor=0", "scheduler.flor: Cosine has no parameter 'flor'; did you mean 'floor'?"),
        ("scheduler.total_steps=9", "scheduler.total_steps: 9 ends before trainer.max_steps=2000"),
    ],
)
def test_a_mistake_is_one_sentence(override: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        describe_schedule(config("cosine", override), "cosine")
    assert str(error.value).startswith(message)
