"""Learning rate schedules for people: rates at the updates that tell one from another, and all of them as one plot."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from crosslight.description.page import Figure, document, figure
from crosslight.description.plots import INK, PAPER_COLOURS, SOURCE, TARGET, as_svg, picture
from crosslight.description.tables import Table

LINES = (
    (SOURCE, "-"),
    (TARGET, "--"),
    (INK, ":"),
    (SOURCE, "-."),
    (TARGET, (0, (1, 1))),
    (INK, (0, (5, 1, 1, 1, 1, 1))),
)
"""Colour and dashes of each schedule in turn: told apart without colours too."""

DRAWN = 600
"""A line needs no more points."""

FAR_APART = 30.0
"""Peaks with a greater ratio are drawn on a logarithmic axis, where none lies flat on the ground."""


@dataclass(frozen=True)
class Curve:
    """A schedule over a run of `total` updates. `places` names the updates at which it turns."""

    name: str
    rate: Callable[[int], float]
    warmup: int
    total: int
    places: dict[int, str]


def table(curves: Sequence[Curve]) -> Table:
    """The rates at the first update, where schedules turn, in the middle and at the end."""
    total = max(curve.total for curve in curves)
    names = {1: "first", max(1, total // 2): "middle"}
    for curve in curves:
        names |= {update: name for update, name in curve.places.items() if 1 <= update <= total}
    names |= {total: "end"}
    rows = [[f"{u:,}", names[u], *(f"{curve.rate(u):.3e}" for curve in curves)] for u in sorted(names)]
    return Table("Learning rate", ["update", "", *(curve.name for curve in curves)], rows, texts=frozenset({1}))


def as_text(curves: Sequence[Curve]) -> str:
    """The table, and what it cannot show."""
    return "\n\n".join([table(curves).as_text(), *_remarks(curves)])


def as_html(curves: Sequence[Curve]) -> str:
    """A page with the plot beside its numbers."""
    alt = "The learning rate against the update, one line a schedule; a dotted line marks the end of the warm-up."
    plot = as_svg("schedules", lambda axes: _draw(axes, curves, {}))
    remarks = "".join(f"<p>{escape(remark)}</p>" for remark in _remarks(curves))
    return document(_title(curves), figure(Figure(plot, alt, table(curves)), "pair wide") + remarks)


def as_picture(curves: Sequence[Curve], suffix: str) -> bytes:
    """The plot alone, as a file whose name ends so: one of `plots.PICTURES`."""
    return picture(suffix, lambda axes: _draw(axes, curves, PAPER_COLOURS))


def _title(curves: Sequence[Curve]) -> str:
    return f"Learning rate: {', '.join(curve.name for curve in curves)}"


def _remarks(curves: Sequence[Curve]) -> list[str]:
    return [
        f"{curve.name}: the warm-up of {curve.warmup:,} updates is longer than the run of {curve.total:,}."
        for curve in curves
        if curve.warmup > curve.total
    ]


def _draw(axes: Any, curves: Sequence[Curve], colours: Mapping[str, str]) -> None:
    """`colours` stand in for those of the page."""
    peaks, total = [], max(curve.total for curve in curves)
    for number, curve in enumerate(curves):
        evenly = np.linspace(1, curve.total, DRAWN).astype(int)
        turns = [u for u in curve.places if 1 <= u <= curve.total]
        updates = np.unique([*evenly.tolist(), *turns, *(u + 1 for u in turns if u < curve.total)])
        rates = [curve.rate(update) for update in updates.tolist()]
        peaks.append(max(rates))
        colour, dashes = LINES[number % len(LINES)]
        axes.plot(updates, rates, color=colours.get(colour, colour), linestyle=dashes, linewidth=1.8, label=curve.name)
    logarithmic = max(peaks) > FAR_APART * min(peaks) > 0
    axes.set(xlabel="update", ylabel="learning rate", xlim=(0, total))
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(min(peaks) / 1e3, max(peaks) * 6)
    else:
        axes.set_ylim(0, max(peaks) * 1.12 or 1)
        axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:g}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    ink = colours.get(INK, INK)
    for warmup in sorted({curve.warmup for curve in curves if 1 < curve.warmup <= curve.total}):
        axes.axvline(warmup, color=ink, linewidth=0.8, linestyle=":")
        late = warmup > 0.6 * total
        axes.annotate(
            f"end of warm-up, {warmup:,}",
            (warmup, 0.985),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if late else 4, 0),
            textcoords="offset points",
            ha="right" if late else "left",
            va="top",
            fontsize=9,
        )
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2)
