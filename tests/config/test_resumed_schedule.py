"""A resume that trains longer: what it does to a schedule that knows its end."""

from pathlib import Path

import pytest
import yaml

from crosslight import build
from crosslight.config.compose import compose
from crosslight.errors import ConfigError
from crosslight.optim.schedules import Schedule
from crosslight.runs.folder import RunFolder
from crosslight.starting import resumed


def of_a_resume(tmp_path: Path, scheduler: str, *overrides: str) -> Schedule:
    """The schedule after `python train.py resume=… <overrides>` of a run of 100 updates; its config is checked."""
    folder = RunFolder(tmp_path)
    options = ["data=copy", f"scheduler={scheduler}", "scheduler.warmup_steps=10", "trainer.max_steps=100"]
    folder.config.write_text(yaml.safe_dump(build.plain(compose(options))))
    config = build.plain(resumed(folder, list(overrides)))
    build.check(config)
    return build.make(config["scheduler"])


@pytest.mark.parametrize("scheduler", ["cosine", "wsd"])
def test_more_updates_than_the_schedule_knows_are_refused(tmp_path: Path, scheduler: str) -> None:
    with pytest.raises(ConfigError) as error:
        of_a_resume(tmp_path, scheduler, "trainer.max_steps=200")
    assert str(error.value) == (
        "scheduler.total_steps: 100 ends before trainer.max_steps=200; give scheduler.total_steps=200 as well"
    )


@pytest.mark.parametrize("scheduler", ["cosine", "wsd"])
def test_a_new_end_is_taken_where_it_is_given(tmp_path: Path, scheduler: str) -> None:
    before = of_a_resume(tmp_path, scheduler)
    after = of_a_resume(tmp_path, scheduler, "trainer.max_steps=200", "scheduler.total_steps=200")
    assert before(100, 1.0) == pytest.approx(0.0)
    assert after(100, 1.0) > 0.5
    assert after(200, 1.0) == pytest.approx(0.0)
    assert (before(60, 1.0) == after(60, 1.0)) is (
        scheduler == "wsd"
    )  # nothing that was done would have been otherwise


def test_fewer_updates_leave_the_schedule_as_it_was(tmp_path: Path) -> None:
    assert of_a_resume(tmp_path, "cosine", "trainer.max_steps=50")(50, 1.0) == of_a_resume(tmp_path, "cosine")(50, 1.0)
