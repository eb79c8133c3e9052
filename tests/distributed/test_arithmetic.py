"""The same sentences make the same update on any number of processes and micro-batches (cases F02, F03, F06, F08).

Trained by plain gradient descent at a rate of 1, so that weights show every factor. `arithmetic.py` is what runs.
"""

import os
import socket
from typing import Any

import arithmetic
import pytest
import torch
from arithmetic import CLIP, LAYOUTS, SCHEDULED, WEIGHED, Layout
from commands import environment
from forked import ForkServer

Results = dict[tuple[Any, ...], dict[str, Any]]
ONE = Layout(1, 1)
"""One process that sees all sentences of a window in one micro-batch."""

ROUNDING = 2**-8
"""The largest relative error of one rounding to bfloat16, which has 8 significant bits."""


@pytest.fixture(scope="module")
def results(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All layouts, by one process and by one pair of processes."""
    folder = tmp_path_factory.mktemp("arithmetic")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = []
    for rank, world in ((0, 1), (0, 2), (1, 2)):
        with open(folder / f"{rank} of {world}", "wb") as said, open(os.devnull, "rb") as nothing:
            line = [arithmetic.__file__, str(folder), str(rank), str(world), port]
            ends = {"stdin": nothing.fileno(), "stdout": said.fileno(), "stderr": said.fileno()}
            processes.append(fork_server.start(line, cwd=folder, environment=environment(), **ends))
    try:
        statuses = [process.wait(timeout=240) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert statuses == [0, 0, 0], [path.read_text()[-2000:] for path in folder.glob("* of *")]
    return {key: found for world in (1, 2) for key, found in torch.load(folder / f"world={world}.pt").items()}


def named(layout: Layout) -> str:
    return ", ".join(map(str, layout))


def found_in(results: Results, kind: str, layout: Layout) -> tuple[list[torch.Tensor], list[float], list[float]]:
    """The weights at the start and after each update, the losses and the norms before clipping."""
    found = results[kind, *layout]
    return found["weights"], found["numbers"]["train/loss"], found["numbers"]["train/gradient_norm"]


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout.precision == "32"], ids=named)
def test_every_layout_makes_the_updates_of_one_process_and_one_micro_batch(results: Results, layout: Layout) -> None:
    weights, losses, norms = found_in(results, "translating", layout)
    expected, expected_losses, expected_norms = found_in(results, "translating", ONE._replace(clip=layout.clip))
    assert len(weights) == len(expected) == 3  # the second window is a short one
    for one, other in zip(weights, expected, strict=True):
        assert float((one - other).abs().max()) < 1e-6
    assert losses == pytest.approx(expected_losses, rel=1e-6)
    assert norms == pytest.approx(expected_norms, rel=1e-6)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout.precision == "bf16"], ids=named)
def test_in_bfloat16_layouts_differ_by_less_than_its_own_error(results: Results, layout: Layout) -> None:
    """By how much one micro-batch in bfloat16 misses the update in float32 is how exact any layout can be."""
    weights, losses, norms = found_in(results, "translating", layout)
    expected, expected_losses, expected_norms = found_in(results, "translating", ONE._replace(precision="bf16"))
    exact, _, exact_norms = found_in(results, "translating", ONE)
    assert len(weights) == 3
    for one, other, true in zip(weights[1:], expected[1:], exact[1:], strict=True):
        error = float((other - true).norm())
        assert float((one - other).norm()) <= error < 4 * ROUNDING * sum(exact_norms)
    assert losses == pytest.approx(expected_losses, rel=ROUNDING)
    assert norms == pytest.approx(expected_norms, rel=ROUNDING)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout.clip], ids=named)
def test_clipping_sees_the_norm_of_the_whole_update(results: Results, layout: Layout) -> None:
    (start, clipped, _), _, norms = found_in(results, "translating", layout)
    (_, free, _), _, free_norms = found_in(results, "translating", layout._replace(clip=None))
    assert norms[0] == pytest.approx(free_norms[0], rel=1e-6)
    assert min(norms) > 10 * CLIP
    torch.testing.assert_close(clipped - start, (free - start) * CLIP / norms[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("layout", WEIGHED, ids=named)
def test_ten_tokens_that_cost_50_and_ninety_that_cost_180_cost_230_a_hundred(results: Results, layout: Layout) -> None:
    (_, weight), losses, norms = found_in(results, "weighing", layout)
    assert losses == pytest.approx([2.30], abs=1e-6)
    assert norms == pytest.approx([2.30], abs=1e-6)
    assert float(weight) == pytest.approx(1 - (layout.clip or 2.30), abs=1e-6)


def test_the_rate_is_a_function_of_the_update_in_every_layout(results: Results) -> None:
    for layout in SCHEDULED:
        numbers = results["scheduling", *layout]["numbers"]
        assert numbers["train/epoch"] == [epoch for epoch in range(4) for _ in range(5)]
        rates = numbers["train/learning_rate"]
        assert rates == [min(update / 10, (10 / update) ** 0.5) for update in range(1, 21)]
        assert rates.index(max(rates)) + 1 == 10
