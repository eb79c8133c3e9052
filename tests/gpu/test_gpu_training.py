"""The same run on GPUs: learns, in each precision and strategy. Run with `pytest -m gpu` on a machine that has one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

OPTIONS = ["expect=null", "trainer.max_steps=300", "trainer.val_check_interval=150", "data.num_train=20000"]


@pytest.mark.parametrize("precision", ["32", "bf16", "16"])
def test_one_gpu_learns_to_copy(train: Callable[..., Path], precision: str) -> None:
    run = train(*OPTIONS, "trainer=gpu", f"trainer.precision={precision}")
    assert json.loads((run / "record.json").read_text())["scores"]["test"]["copy"]["bleu"]["value"] > 30


@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
def test_all_gpus_learn_to_copy(train: Callable[..., Path], trainer: str) -> None:
    run = train(*OPTIONS, f"trainer={trainer}")
    assert json.loads((run / "record.json").read_text())["scores"]["test"]["copy"]["bleu"]["value"] > 30


def test_fused_attention_equals_the_plain_one() -> None:
    from crosslight.nn.attention import attend, attention_scores, attention_weights

    query, key, value = (torch.randn(2, 3, n, 8, device="cuda") for n in (4, 5, 5))
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool, device="cuda")
    mask[0, ..., 3:] = False
    plain = attention_weights(attention_scores(query, key, 8**-0.5), mask) @ value
    torch.testing.assert_close(attend(query, key, value, mask), plain, rtol=1e-4, atol=1e-4)


def test_the_budget_that_is_found_fills_what_it_may_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    from texts import numbers

    from crosslight import build
    from crosslight.config.compose import compose, plain
    from crosslight.inference import load_run
    from crosslight.runs.budget import Shapes, _Trial, find_budget

    limit, tokenizers = 2 * 2**30, numbers(8000)
    config = plain(compose(["data=text_files", "model=small", "trainer=gpu"]))
    recipe = build.build_trainer_recipe(config)

    def task() -> Any:
        parts = {"model": build.build_model(config, tokenizers), "search": build.build_search(config)}
        return build.build_task(config, tokenizers=tokenizers, recipe=recipe, test_langs={}, load_run=load_run, **parts)

    monkeypatch.setattr("crosslight.runs.budget.memory_limit", lambda **_: limit)
    found = find_budget(task(), recipe, Shapes(100, 5, None), token=2).max_tokens
    trial = _Trial(task(), recipe, token=2)
    used = max(trial.measure(found // width, width) for width in (100, 5))
    assert 0.85 * limit < used <= limit
