"""The plots of a data description as SVG that takes its colours from the page around it."""

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from crosslight.description.measure import RATIO_EDGES, Description, SetDescription

INK, SOURCE, TARGET, GRID = "#010203", "#010204", "#010205", "#010206"
"""Stand-ins for the page's colours, which differ in light and dark."""

PAGE_COLOURS = {INK: "currentColor", SOURCE: "var(--source)", TARGET: "var(--target)", GRID: "var(--line)"}

PAPER_COLOURS = {INK: "#1c2024", SOURCE: "#1f6fb2", TARGET: "#b54f08", GRID: "#d9dcdf"}
"""Those of the page in light, for pictures that have no page around them."""

PICTURES = (".png", ".svg", ".pdf")

STYLE: Any = {
    "svg.fonttype": "none",  # text stays text, in the font of the page
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.labelcolor": INK,
}


def lengths_plot(each: SetDescription) -> str:
    """How many lines have how many pieces, on both sides, up to a length that 99.5 % do not exceed."""
    end = max(side.quantile(0.995) for side in (each.source, each.target)) + 1

    def draw(axes: Any) -> None:
        lengths = np.arange(end + 1)
        for side, colour, name in ((each.source, SOURCE, "source"), (each.target, TARGET, "target")):
            counts = np.zeros(end, np.int64)
            shown = side.length_counts[:end]
            counts[: len(shown)] = shown
            axes.stairs(counts, lengths - 0.5, fill=True, color=colour, alpha=0.2)
            axes.stairs(counts, lengths - 0.5, color=colour, label=name, linestyle="-" if name == "source" else "--")
        axes.set(xlabel="pieces", ylabel="lines", xlim=(-0.5, end - 0.5))
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.legend()

    return as_svg("lengths", draw)


def joint_plot(each: SetDescription) -> str:
    """Source length against target length; the more pairs, the deeper the colour. The line is equal length."""
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("density", [(0.12, 0.47, 0.71, 0.08), (0.12, 0.47, 0.71, 1.0)])
    step = each.joint_step
    shown = max(side.quantile(0.995) for side in (each.source, each.target)) // step + 1
    counts = each.joint_lengths[:shown, :shown].T
    edges = np.arange(shown + 1) * step - 0.5

    def draw(axes: Any) -> None:
        axes.grid(False)
        density = np.ma.masked_equal(np.log1p(counts), 0)
        axes.pcolormesh(edges, edges, density, cmap=colours, rasterized=True)
        axes.axline((0, 0), slope=1, color=INK, linewidth=0.8, linestyle=":")
        axes.set(xlabel="source pieces", ylabel="target pieces", xlim=edges[[0, -1]], ylim=edges[[0, -1]])

    return as_svg("joint", draw)


def ratio_plot(each: SetDescription) -> str:
    """How many pairs have which ratio of target to source pieces, on a scale where 1/2 and 2 are equally far from 1."""

    def draw(axes: Any) -> None:
        axes.stairs(each.ratio_counts, np.log2(RATIO_EDGES), fill=True, color=SOURCE, alpha=0.25)
        axes.stairs(each.ratio_counts, np.log2(RATIO_EDGES), color=SOURCE)
        axes.set(xlabel="target pieces / source pieces", ylabel="pairs")
        axes.set_xticks([-2, -1, 0, 1, 2], ["≤ 1/4", "1/2", "1", "2", "≥ 4"])
        axes.yaxis.set_major_formatter("{x:,.0f}")

    return as_svg("ratio", draw)


def batches_plot(description: Description) -> str:
    """The share of padding under each budget, on each side."""

    def draw(axes: Any) -> None:
        places = np.arange(len(description.batches))
        for shift, colour, name in ((-0.2, SOURCE, "source"), (0.2, TARGET, "target")):
            shares = [100 * getattr(batches, f"{name}_padding") for batches in description.batches]
            bars = axes.bar(places + shift, shares, 0.36, color=colour, alpha=0.75, label=name)
            axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
        names = [
            f"{b.max_tokens:,}\n(configured)" if b.max_tokens == description.max_tokens else f"{b.max_tokens:,}"
            for b in description.batches
        ]
        axes.set_xticks(places, names)
        axes.grid(False, axis="x")
        axes.set(xlabel="batching.max_tokens", ylabel="padding, % of tokens")
        axes.margins(y=0.25)
        axes.legend(ncols=2, loc="upper right")

    return as_svg("batches", draw)


def frequency_plot(description: Description) -> str:
    """How often the k-th most frequent piece occurs, both scales logarithmic."""

    def draw(axes: Any) -> None:
        for vocabulary, colour, style in zip(description.vocabularies, (SOURCE, TARGET), ("-", "--"), strict=False):
            counts = vocabulary.counts[vocabulary.ranked]
            kept = np.unique(np.geomspace(1, max(1, len(counts)), 200).astype(int)) - 1  # a line needs no more
            kept = kept[kept < len(counts)]
            axes.loglog(kept + 1, counts[kept], color=colour, linestyle=style, label=vocabulary.name)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.0f}")
        axes.set(xlabel="rank of the piece", ylabel="times in training")
        axes.legend()

    return as_svg("frequency", draw)


def as_svg(name: str, draw: Callable[[Any], None]) -> str:
    """An SVG element without sizes of its own. The same numbers give the same text; ids of two plots never meet."""
    import matplotlib

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        file = io.StringIO()
        _drawn(draw).savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    _, _, inside = file.getvalue().partition("<svg ")
    tag, end, rest = inside.partition(">")
    tag = re.sub(r'(width|height)="[^"]*"', "", tag)
    text = f"<svg {tag}{end}{rest}".strip()
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*"', "<g", text)  # names that every plot has and nothing refers to
    for stand_in, colour in PAGE_COLOURS.items():
        text = text.replace(stand_in, colour)
    return text


def picture(suffix: str, draw: Callable[[Any], None]) -> bytes:
    """A plot as a file of its own, on white; `suffix` is one of PICTURES, and `draw` uses PAPER_COLOURS."""
    import matplotlib

    with matplotlib.rc_context({key: PAPER_COLOURS.get(value, value) for key, value in STYLE.items()}):
        file = io.BytesIO()
        _drawn(draw).savefig(file, format=suffix.removeprefix("."))
    return file.getvalue()


def _drawn(draw: Callable[[Any], None]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.5), dpi=144, layout="constrained")
    draw(figure.add_subplot())
    return figure
