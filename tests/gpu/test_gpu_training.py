"""The same run on GPUs: learns, in each precision and strategy. Run with `pytest -m gpu` on a machine that has one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]

OPTIONS = ["expect=null", "trainer.max_steps=300", "trainer.val_check_interval=150", "data.num_train=20000"]


@pytest.mark.parametrize("precision", ["32", "tf32", "bf16", "16"])
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_rule_of_causality_equals_its_mask(dtype: torch.dtype) -> None:
    from crosslight.nn.attention import attend
    from crosslight.nn.masks import Rule, causal_mask

    query, key, value = (torch.randn(2, 3, 7, 8, device="cuda", dtype=dtype) for _ in range(3))
    masked = attend(query, key, value, causal_mask(7, 0, query.device))
    torch.testing.assert_close(attend(query, key, value, Rule.CAUSAL), masked, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_query_without_keys_gathers_nothing(dtype: torch.dtype) -> None:
    from crosslight.nn.attention import attend

    query, key, value = (torch.randn(2, 3, 7, 8, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool, device="cuda")
    mask[0, :, 2] = False
    found = attend(query, key, value, mask)
    found.float().sum().backward()
    assert not found[0, :, 2].any()
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in (query, key, value))


def test_causality_without_a_mask_takes_the_flash_kernel_and_a_mask_never_cudnn() -> None:
    from torch.profiler import ProfilerActivity, profile

    from crosslight.nn.attention import attend
    from crosslight.nn.masks import Mask, Rule

    query = torch.randn(2, 3, 16, 64, device="cuda", dtype=torch.bfloat16)
    padding = torch.ones(2, 1, 1, 16, dtype=torch.bool, device="cuda")
    cases: list[tuple[Mask, str]] = [(Rule.CAUSAL, "flash"), (padding, "efficient")]
    for mask, kernel in cases:
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            attend(query, query, query, mask)
        assert any(f"_scaled_dot_product_{kernel}_attention" in event.key for event in seen.key_averages())


def test_an_update_waits_for_nothing_but_its_transfers() -> None:
    from texts import numbers

    from crosslight.batches import Batch
    from crosslight.build import build_model, build_objective, make, plain
    from crosslight.config.compose import compose

    config, tokenizers = plain(compose(["model=tiny", "model.dropout=0.1"])), numbers(50)
    model = build_model(config, tokenizers).cuda()
    objective = build_objective(config, pad_id=tokenizers.source.pad_id)
    optimizer = make(config["optimizer"])(model.parameters())
    ids = [torch.randint(4, 50, (3, length), device="cuda") for length in (7, 5, 5)]

    def update() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            objective(model, Batch(*ids, sentence_ids=(0, 1, 2))).total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    update()
    torch.cuda.set_sync_debug_mode("error")
    try:
        update()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["32", "bf16"])
def test_a_compiled_run_learns_to_copy(train: Callable[..., Path], precision: str) -> None:
    run = train(*OPTIONS, "trainer=gpu", "trainer.compile=true", f"trainer.precision={precision}")
    assert json.loads((run / "record.json").read_text())["scores"]["test"]["copy"]["bleu"]["value"] > 30


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
