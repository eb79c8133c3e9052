"""A run killed again and again, anywhere, is to the last bit the run that nobody disturbed, in every update."""

import json
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, SMALL, environment
from forked import ForkServer
from killing import SPYING, KilledRun, log_to, read_steps
from small_runs import assert_same

COPY = [setting for setting in SMALL if setting.startswith("data.")]
SETTINGS = [
    *(setting for setting in SMALL if setting not in COPY),
    "model.dropout=0.1",
    "model.attention_dropout=0.1",
    "batching.max_tokens=300",
    "batching.eval_max_tokens=100",
    "callbacks=[saver,best,progress,samples]",
    "callbacks.saver.every_n_updates=3",
    "scheduler=inverse_sqrt",
    "scheduler.warmup_steps=20",
    "trainer.max_steps=1000",
    "trainer.threads=1",
]
SINGLE = ["trainer.accumulate=1", "trainer.max_epochs=3", "trainer.val_check_interval=10"]
TRIPLE = ["trainer.accumulate=3", "trainer.max_epochs=5", "trainer.val_check_interval=6"]
TEXT = [
    "data=text_files",
    "data.train.source=a.en",
    "data.train.target=a.de",
    "data.held_out=21",
    "tokenizer.vocab_size=120",
    "tokenizer.sampling_alpha=0.2",
]
MOMENTS = ["time"] * 3 + ["update"] * 5 + ["validation"] * 3 + ["saving"] * 3 + ["saving the best"]
SIGNALLED = ["update by SIGTERM", "validation by SIGTERM"]
SHALLOW = ["model.num_encoder_layers=1", "model.num_decoder_layers=1"]
PAIR = ["update of rank 0", "update of rank 1", "validation of rank 1", "update of rank 1 by SIGTERM"]

BESIDES = ("crosslight", "content_sha256")
"""What a checkpoint says about the start that wrote it."""


class Layout:
    """Settings of a run, the moments at which it is killed, and what each start changes in turn."""

    def __init__(
        self,
        *options: str,
        data: Sequence[str] = COPY,
        moments: Sequence[str] = (*MOMENTS, *SIGNALLED),
        changes: Sequence[Sequence[str]] = ((),),
        auto: bool = False,
    ) -> None:
        self.options, self.moments, self.changes, self.auto = [*data, *SETTINGS, *options], moments, changes, auto


LAYOUTS = {
    "2 workers, accumulate 3": Layout("batching.num_workers=2", *TRIPLE, moments=[*MOMENTS, "update of rank 0"]),
    "0 workers, accumulate 1": Layout(*SINGLE),
    "2 workers, accumulate 1, resume=auto": Layout("batching.num_workers=2", *SINGLE, auto=True),
    "0 workers, accumulate 3, resume=auto": Layout(*TRIPLE, auto=True),
    "stream": Layout("batching.shuffle_buffer=90", *TRIPLE, "trainer.val_check_interval=11"),
    "BPE-dropout, 2 workers": Layout("batching.num_workers=2", *TRIPLE, data=TEXT),
    "2 processes": Layout(
        *("trainer=ddp_cpu", "trainer.virtual_ranks=2", "trainer.devices=1", *TRIPLE, "trainer.max_epochs=8"),
        moments=[*MOMENTS, *PAIR],
        changes=[["trainer.devices=2"]],
    ),
    "4 virtual ranks on 1, 2 and 4 processes": Layout(
        *("trainer=ddp_cpu", "trainer.virtual_ranks=4", "trainer.devices=1"),
        *("trainer.max_epochs=6", "trainer.val_check_interval=4"),
        changes=[[f"trainer.devices={count}"] for count in (1, 2, 4, 1)],
    ),
}


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Its processes find the callback that writes everything down."""
    server = ForkServer(**SPYING)
    yield server
    server.close()


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines that are shown after the last test."""
    lines: list[str] = []
    yield lines
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("", *lines, sep="\n")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder for two runs, with a small text of sentences that share words."""
    rng = random.Random(5)
    words = ["".join(rng.choices("abcdefgh", k=rng.randint(2, 9))) for _ in range(80)]
    lines = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(400)]
    for name, text in (("a.en", lines), ("a.de", [line.upper() for line in lines])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text))
    return tmp_path


def undisturbed(work: Path, options: Sequence[str]) -> Path:
    """The run that nobody kills, by a new Python with hash seeds of its own."""
    run = work / "whole"
    line = [str(ROOT / "train.py"), *options, *log_to(work / "whole.steps"), f"hydra.run.dir={run}"]
    subprocess.run([sys.executable, *line], cwd=work, env=environment(**SPYING), check=True, capture_output=True)
    return run


def last_checkpoint(run: Path) -> dict[str, Any]:
    """What the newest checkpoint holds, without times and settings.

    Lightning counts the validation batches of a start; one that a signal has cut short counts twice.
    """
    path = max((run / "checkpoints").glob("update=*.ckpt"), key=lambda path: int(path.stem.partition("=")[2]))
    content = torch.load(path, weights_only=True)
    content["callbacks"].pop("Progress")
    content["loops"]["fit_loop"].pop("epoch_loop.val_loop.batch_progress")
    return {key: value for key, value in content.items() if key not in BESIDES}


def best_weights(run: Path) -> dict[str, Any]:
    """What the run holds of its best validations, by file."""
    kept = [run / "checkpoints" / "best.ckpt", *sorted((run / "checkpoints" / "best").iterdir())]
    contents = {str(path.relative_to(run)): torch.load(path, weights_only=True) for path in kept}
    return {name: {key: content[key] for key in content.keys() - {*BESIDES}} for name, content in contents.items()}


def assert_same_steps(killed: KilledRun, whole: Path, ranks: int) -> int:
    """All that any process of the killed run did is what the undisturbed one did then; gives how often it was compared.

    So an update that was lost and done again was the same both times.
    """
    steps = read_steps(whole, 0)
    expected = {(step["step"], step["update"]): step for step in steps if step["step"] in ("update", "validated")}
    compared, done = 0, set()
    for rank in range(ranks):
        world = 1
        for step in read_steps(killed.log, rank):
            if step["step"] == "start":
                world = step["world"]
            if step["step"] in ("update", "validated"):
                one = dict(expected[step["step"], step["update"]])
                for key in {"micro_batches", "pieces"} & one.keys():
                    share = len(one[key]) // world
                    one[key] = one[key][rank * share : (rank + 1) * share]
                assert step == one, f"rank {rank} of {world}, kills so far: {killed.kills}"
                compared += 1
                done.add((step["step"], step["update"]))
    assert done == expected.keys(), "every update and validation has taken place"
    return compared


def assert_same_run(killed: KilledRun, whole: Path) -> None:
    """The last checkpoint (all of it but times), the best one, scores and translations."""
    assert_same(last_checkpoint(whole), last_checkpoint(killed.folder))
    assert_same(best_weights(whole), best_weights(killed.folder))
    records = [json.loads((run / "record.json").read_text()) for run in (whole, killed.folder)]
    for key in ("status", "updates", "epochs", "scores", "tokenizer_sha256"):
        assert records[0][key] == records[1][key]
    texts = [
        {path.name: path.read_bytes() for path in (run / "hypotheses").iterdir()} for run in (whole, killed.folder)
    ]
    assert texts[0] == texts[1]
    log = (killed.folder / "train.log").read_text()
    said = Counter(int(update) for update in re.findall(r"resuming from .*update=(\d+)\.ckpt", log))
    assert Counter(killed.resumed) <= said


def broken(
    server: ForkServer, work: Path, layout: Layout, moments: Sequence[str], seed: int
) -> tuple[KilledRun, Path, Counter[str]]:
    """A run killed at all the moments and then finished, the undisturbed one, and how often each phase was hit."""
    whole = undisturbed(work, layout.options)
    killed = KilledRun(server, work, layout.options, seed=seed, auto=layout.auto)
    moments, changes = list(moments), cycle(layout.changes)
    killed.random.shuffle(moments)
    going_on = all(killed.kill(moment, *next(changes)) for moment in moments)
    for moment in ["saving", "validation"] * 3:  # a kill may have come a moment too late
        if going_on and moment not in {kill.phase for kill in killed.kills}:
            going_on = killed.kill(moment, *next(changes))
    killed.finish(*next(changes))
    return killed, whole, Counter(kill.phase for kill in killed.kills)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(LAYOUTS))
def test_no_kill_changes_a_bit(server: ForkServer, work: Path, table: list[str], name: str) -> None:
    layout, seed = LAYOUTS[name], 1 + list(LAYOUTS).index(name)
    killed, whole, phases = broken(server, work, layout, layout.moments, seed)
    counts = ", ".join(f"{phase} {count}" for phase, count in sorted(phases.items()))
    table.append(f"{name} (seed {seed}): {phases.total()} kills ({counts}), {len(killed.resumed)} resumes: DIFFERENT")
    compared = assert_same_steps(killed, work / "whole.steps", ranks=4)
    assert_same_run(killed, whole)
    table[-1] = table[-1].replace("DIFFERENT", f"equal in {compared} updates and validations, and at the end")
    ends = {step["last_of_epoch"] for step in read_steps(work / "whole.steps", 0)[:-3] if step["step"] == "validated"}
    assert ends == {False, True}, "some validations are at the end of an epoch, some are not"
    assert phases.total() >= 12
    assert {"validation", "saving"} <= phases.keys()
    assert phases.keys() & {"training", "inside an update"}


def test_a_few_kills_anywhere_change_no_bit(server: ForkServer, work: Path) -> None:
    layout = Layout("batching.num_workers=2", *TRIPLE, "trainer.max_epochs=3", *SHALLOW)
    killed, whole, phases = broken(server, work, layout, ["update", "validation", "saving", "time"], seed=3)
    assert_same_steps(killed, work / "whole.steps", ranks=1)
    assert_same_run(killed, whole)
    assert phases.total() >= 4
    assert {"validation", "saving"} <= phases.keys()
    assert killed.resumed


@pytest.mark.parametrize(
    ("workers", "accumulate"),
    [(0, 1), *(pytest.param(*layout, marks=pytest.mark.slow) for layout in ((2, 3), (2, 1), (0, 3)))],
)
def test_a_run_goes_on_in_the_middle_of_an_epoch_and_of_an_update(
    server: ForkServer, work: Path, workers: int, accumulate: int
) -> None:
    """Twenty batches an epoch; stopped after update 7, killed in update 12, finished at 45 (case G01)."""
    batches = [
        *("data.min_length=6", "data.max_length=6", "data.num_train=200", "batching.max_tokens=70"),
        *(f"batching.num_workers={workers}", f"trainer.accumulate={accumulate}"),
        *("trainer.max_steps=45", "trainer.val_check_interval=7", "callbacks.saver.every_n_updates=7"),
        *("decode=greedy", *SHALLOW),
    ]
    options = [*COPY, *SETTINGS, *batches]
    whole = undisturbed(work, options)
    run = KilledRun(server, work, options, seed=1, auto=False)
    run.finish("trainer.max_steps=7")
    process = run.start("trainer.max_steps=45", f"callbacks.kill_log.die=[12,{accumulate}]")
    assert process.wait(timeout=120) == -signal.SIGKILL
    last = read_steps(run.log, 0)[-1]
    assert (last["step"], last["update"], last["number"]) == ("micro-batch", 12, accumulate)
    run.finish("callbacks.kill_log.die=null")
    assert run.resumed == [7]
    updates = [step for step in read_steps(work / "whole.steps", 0) if step["step"] == "update"]
    epoch = [batch for step in updates if step["epoch"] == 1 for batch in step["micro_batches"] if batch]
    assert len(epoch) == 20
    assert sorted(sentence for batch in epoch for sentence in batch) == list(range(200))
    assert_same_steps(run, work / "whole.steps", ranks=1)
    assert_same_run(run, whole)
