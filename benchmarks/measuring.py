"""Side against side: each in processes of its own, in turns (A B A B), with a watch on what else used the processor.

A benchmark calls `interleaved` and `report`; its children measure with a `Watch` and end with `tell`. Ratios of medians
hold; absolute figures belong to the machine of the day.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Result = dict[str, Any]

QUIET = 0.05
"""The share of one core that others may have used; a measurement above it is made again, at most twice."""


class Watch:
    """Wall time of a `with` block, and how much of one core other processes used in it (None where nobody tells)."""

    def __enter__(self) -> "Watch":
        self._busy, self._own, self._start = _busy_seconds(), _own_seconds(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._start
        self.others = None
        if self._busy is not None and (busy := _busy_seconds()) is not None:
            mine = _own_seconds() - self._own
            self.others = max(0.0, busy - self._busy - mine) / max(1e-9, self.seconds)


def _busy_seconds() -> float | None:
    """Seconds that all cores together were not idle, since the machine began."""
    try:
        user, nice, system, _, _, *interrupts = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    except OSError:
        return None
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    return sum(os.times()[:4])


def tell(result: Mapping[str, Any]) -> None:
    """What a child prints last: its result, with the most memory that it (or a process of its own) held."""
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(json.dumps({**result, "peak_mb": most / (2**20 if sys.platform == "darwin" else 2**10)}))


def interleaved(sides: Mapping[str, Sequence[str]], rounds: int) -> dict[str, list[Result]]:
    """What each side's command, an argument list for this Python, told in each of the rounds."""
    found: dict[str, list[Result]] = {side: [] for side in sides}
    for number in range(1, rounds + 1):
        for side, arguments in sides.items():
            for _ in range(3):
                result = _child(side, arguments)
                disturbed = (result.get("others") or 0.0) > QUIET
                shown = {key: value for key, value in result.items() if not isinstance(value, list | dict)}
                print(f"round {number}, {side}: {shown}{' DISTURBED' if disturbed else ''}", flush=True)
                if not disturbed:
                    break
            found[side].append(result)
    return found


def _child(side: str, arguments: Sequence[str]) -> Result:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{side} failed with status {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def gemm_peak(dtype: str = "float32", size: int = 2048) -> float:
    """Floating-point operations a second of one large matrix product: what utilisation is measured against."""
    import torch

    a, b = (torch.randn(size, size).to(getattr(torch, dtype)) for _ in range(2))
    times = []
    for _ in range(12):
        start = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - start)
    return 2 * size**3 / statistics.median(times[2:])


def medians(found: Mapping[str, list[Result]], key: str) -> dict[str, float]:
    """The median over the rounds, by side."""
    return {side: statistics.median(result[key] for result in results) for side, results in found.items()}


def report(
    stem: Path, title: str, found: Mapping[str, list[Result]], *, value: str, unit: str, extra: Sequence[str] = ()
) -> None:
    """Print a table and write it as `stem`.json (all results) and `stem`.png (bars with the spread of the rounds).

    The first side is ours: ratios say how many times the others' median it has.
    """
    middle = medians(found, value)
    ours = next(iter(middle))
    print(f"\n{title}\n{'side':32} {unit:>16} {'least':>9} {'most':>9} {'ratio':>7}", *(f"{key:>12}" for key in extra))
    for side, results in found.items():
        values = [result[value] for result in results]
        more = [f"{statistics.median(r.get(key) or 0.0 for r in results):12,.3g}" for key in extra]
        print(
            f"{side:32} {middle[side]:16,.4g} {min(values):9,.4g} {max(values):9,.4g} "
            f"{middle[ours] / middle[side]:7.2f}",
            *more,
        )
    stem.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "title": title,
        "command": " ".join(sys.argv),
        "machine": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "unit": unit,
        "median": middle,
        "ratio": {side: middle[ours] / of for side, of in middle.items()},
        "results": found,
    }
    stem.with_suffix(".json").write_text(json.dumps(facts, indent=1) + "\n")
    _draw(stem.with_suffix(".png"), title, found, value, unit)
    print(f"written: {stem}.json, {stem}.png")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _draw(file: Path, title: str, found: Mapping[str, list[Result]], value: str, unit: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.9 + 0.5 * len(found)), layout="constrained")
    axes = figure.subplots()
    middle = medians(found, value)
    for row, (side, results) in enumerate(found.items()):
        values = [result[value] for result in results]
        spread = [[middle[side] - min(values)], [max(values) - middle[side]]]
        axes.barh(row, middle[side], xerr=spread, capsize=3, color="tab:blue" if row == 0 else "tab:gray")
        axes.text(0.02 * max(middle.values()), row, f"{middle[side]:,.4g}", va="center", color="white")
    axes.set_yticks(range(len(found)), list(found))
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)
