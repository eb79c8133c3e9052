"""The likeliest tokens are those of a log-softmax and a top-k, which are written out here."""

import pytest
import torch

from crosslight.decoding.likeliest import LANES, largest, likeliest, only_end


@pytest.mark.parametrize("vocab", [1, 5, 257, 4000, 8003])
@pytest.mark.parametrize("count", [1, 3, 5, 40])
def test_likeliest_equals_log_softmax_and_topk(vocab: int, count: int) -> None:
    count = min(count, vocab)
    logits = torch.randn(7, vocab, generator=torch.Generator().manual_seed(vocab)) * 4 + 30
    expected, ids = logits.log_softmax(dim=-1).topk(count, dim=1)
    found = likeliest(logits, count)
    assert torch.equal(found[1], ids)
    torch.testing.assert_close(found[0], expected, rtol=0, atol=1e-5)


def test_a_large_vocabulary_is_searched_by_columns_up_to_its_last_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest of 8,003 numbers are put at every place in turn; part by part gives the same as all at once."""
    monkeypatch.setattr("crosslight.decoding.likeliest.PART", 8003 * 3)
    logits = torch.randn(8, 8003, generator=torch.Generator().manual_seed(1))
    for start in (0, LANES, 7997, 4000):
        raised = logits.clone()
        raised[:, start : start + 5] += torch.tensor([30.0, 50.0, 10.0, 20.0, 40.0])
        found, ids = likeliest(raised, 5)
        assert (ids - start).tolist() == [[1, 4, 0, 3, 2]] * 8
        torch.testing.assert_close(found, raised.log_softmax(dim=-1).gather(1, ids), rtol=0, atol=1e-5)


def test_impossible_tokens_and_half_precision_are_no_trouble() -> None:
    logits = torch.full((2, 4000), -torch.inf)
    logits[0, 3999], logits[1, 17], logits[1, 18] = 2.0, 5.0, 5.0
    found, ids = likeliest(logits.bfloat16(), 2)
    assert found.dtype == torch.float32
    assert ids[0, 0] == 3999
    assert sorted(ids[1].tolist()) == [17, 18]
    assert found[0].tolist() == [0.0, -torch.inf]
    assert found[1].tolist() == pytest.approx([-0.693147] * 2, abs=1e-5)


def test_of_equal_numbers_any_are_taken_but_none_twice() -> None:
    values, ids = largest(torch.zeros(3, 4001), 5)
    assert values.abs().max() == 0
    assert all(len(set(row)) == 5 for row in ids.tolist())


def test_at_its_end_a_row_has_one_candidate() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(1))
    log_probs, ids = only_end(*likeliest(logits, 2), logits, torch.tensor([1]), eos_id=4)
    assert ids[1].tolist() == [4, 4]
    assert log_probs[1].tolist() == pytest.approx([logits.log_softmax(-1)[1, 4].item(), -torch.inf], abs=1e-5)
    assert torch.equal(log_probs[[0, 2]], likeliest(logits, 2)[0][[0, 2]])
