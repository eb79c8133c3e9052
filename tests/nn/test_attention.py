"""Attention by numbers: the textbook example, torch's own multi-head attention, and rows that may see nothing."""

import math

import pytest
import torch
from torch import nn

from crosslight.errors import ConfigError
from crosslight.nn.attention import MultiHeadAttention, attend, attention_scores, attention_weights
from crosslight.nn.masks import causal_mask, fastest, padding_mask, window_mask

BATCH, HEADS, QUERY, KEY, HEAD_DIM = 2, 3, 4, 5, 6


def near(found, expected, atol=1e-6):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=0, atol=atol)


def test_textbook_example_has_the_printed_value_of_every_matrix():
    x = torch.tensor([[1.0, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]])
    keys = x @ torch.tensor([[0.0, 0, 1], [1, 1, 0], [0, 1, 0], [1, 1, 0]])
    queries = x @ torch.tensor([[1.0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 1]])
    values = x @ torch.tensor([[0.0, 2, 0], [0, 3, 0], [1, 0, 3], [1, 1, 0]])
    near(keys, [[0, 1, 1], [4, 4, 0], [2, 3, 1]])
    near(queries, [[1, 0, 2], [2, 2, 2], [2, 1, 3]])
    near(values, [[1, 2, 3], [2, 8, 0], [2, 6, 3]])

    scores = attention_scores(queries, keys, 1.0)
    near(scores, [[2, 4, 4], [4, 16, 12], [4, 12, 10]])

    weights = attention_weights(scores)
    by_hand = [[math.exp(s) / sum(map(math.exp, row)) for s in row] for row in scores.tolist()]
    near(weights, by_hand)
    near(weights, [[0.0634, 0.4683, 0.4683], [0.0000, 0.9820, 0.0180], [0.0003, 0.8805, 0.1192]], atol=6e-5)

    outputs = attend(queries, keys, values, scale=1.0)
    near(outputs, [[sum(w * v for w, v in zip(row, column, strict=True)) for column in values.T.tolist()]
                   for row in by_hand])  # fmt: skip
    near(outputs, [[1.9366, 6.6831, 1.5951], [2.0000, 7.9640, 0.0540], [1.9997, 7.7599, 0.3584]], atol=6e-5)


def test_scores_are_divided_by_the_root_of_the_head_dimension():
    query, key, value = (torch.randn(BATCH, HEADS, n, HEAD_DIM) for n in (QUERY, KEY, KEY))
    near(attend(query, key, value), attend(query, key, value, scale=1 / math.sqrt(HEAD_DIM)))
    near(attention_scores(query, key, 0.5), torch.einsum("bhqd,bhkd->bhqk", query, key) / 2)


def test_attention_equals_torch_under_every_kind_of_mask():
    query, key, value = (torch.randn(BATCH, HEADS, n, HEAD_DIM, dtype=torch.float64) for n in (KEY, KEY, KEY))
    ids = torch.tensor([[7, 7, 7, 7, 7], [7, 7, 7, 0, 0]])
    for mask in (
        padding_mask(ids, 0),
        causal_mask(KEY, 0),
        window_mask(KEY, 1),
        padding_mask(ids, 0) & window_mask(KEY, 3),
    ):
        expected = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        near(attend(query, key, value, mask), expected, atol=1e-12)


def test_masks_say_who_may_attend_to_whom():
    assert padding_mask(torch.tensor([[4, 0, 9]]), 9).tolist() == [[[[True, True, False]]]]
    assert causal_mask(2, 3)[0, 0].int().tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert window_mask(4, 1)[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert window_mask(3, 0)[0, 0].int().tolist() == torch.eye(3).int().tolist()


@pytest.mark.parametrize("length", [1, 64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masks_joined_in_half_precision_neither_overflow_nor_leak(length, dtype):  # E04
    ids = torch.ones(BATCH, length, dtype=torch.long)
    ids[1, length // 2 + 1 :] = 0
    mask = padding_mask(ids, 0) & causal_mask(length, 0)
    scores = 20 * torch.randn(BATCH, HEADS, length, length)
    weights = attention_weights(scores.to(dtype), mask)
    assert weights.dtype == dtype
    assert weights.isfinite().all()
    assert (weights.masked_select(~mask) == 0).all()
    near(weights.float(), attention_weights(scores.to(dtype).float(), mask), atol=5e-3)
    far_below = attention_weights(torch.full_like(scores, -3e4, dtype=dtype), mask)  # a fill of -1e4 would win here
    assert (far_below.masked_select(~mask) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_row_that_may_see_nothing_gathers_zero_and_has_a_finite_gradient(dtype):  # E01
    mask = torch.ones(BATCH, 1, QUERY, KEY, dtype=torch.bool)
    mask[0, :, 2] = False
    query, key, value = (
        torch.randn(BATCH, HEADS, n, HEAD_DIM, dtype=dtype, requires_grad=True) for n in (QUERY, KEY, KEY)
    )
    found = attend(query, key, value, mask)
    assert (found[0, :, 2] == 0).all()
    assert (found[0, :, 1] != 0).all()
    found.square().sum().backward()
    assert (query.grad[0, :, 2] == 0).all()
    assert all(t.grad.isfinite().all() for t in (query, key, value))


def test_multi_head_attention_and_its_weights_equal_torch():
    ours = MultiHeadAttention(HEADS * HEAD_DIM, HEADS, dropout=0.0).double()
    theirs = nn.MultiheadAttention(HEADS * HEAD_DIM, HEADS, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        unused = torch.randn(HEADS * HEAD_DIM)  # torch has a bias of keys, which the softmax takes out again
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, unused, ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    x = torch.randn(BATCH, QUERY, HEADS * HEAD_DIM, dtype=torch.float64)
    memory = torch.randn(BATCH, KEY, HEADS * HEAD_DIM, dtype=torch.float64)
    padding = torch.tensor([[False] * KEY, [False] * 3 + [True] * 2])
    keys_and_values = ours.project(memory)
    output, weights = theirs(x, memory, memory, key_padding_mask=padding, average_attn_weights=False)
    mask = ~padding[:, None, None]
    near(ours(ours.queries(x), keys_and_values, mask), output, atol=1e-9)
    near(ours(ours.queries(x), keys_and_values, fastest(mask, x)), output, atol=1e-9)
    scores = attention_scores(ours.queries(x), keys_and_values[0], HEAD_DIM**-0.5)
    near(attention_weights(scores, mask), weights, atol=1e-9)
    query, (key, value) = ours.project_all(x, 0)
    near(query, ours.queries(x), atol=1e-9)
    for found, expected in zip((key, value), ours.project(x), strict=True):
        near(found, expected, atol=1e-9)


def test_attention_dropout_acts_in_training_only():
    attention = MultiHeadAttention(HEADS * HEAD_DIM, HEADS, dropout=1.0)
    x = torch.randn(BATCH, QUERY, HEADS * HEAD_DIM)
    query, keys_and_values = attention.project_all(x, 0)
    dropped = attention.train()(query, keys_and_values, None)
    near(dropped, attention.output.bias.expand_as(x))
    assert (attention.eval()(query, keys_and_values, None) - dropped).abs().max() > 0.01


@pytest.mark.parametrize(("num_heads", "near_ones"), [(7, "6 and 8"), (5, "4 and 6"), (0, "1 and 2"), (-2, "1 and 2")])
def test_heads_that_do_not_divide_are_named_with_their_nearest_divisors(num_heads, near_ones):
    with pytest.raises(ConfigError) as raised:
        MultiHeadAttention(24, num_heads, dropout=0.0)
    assert str(raised.value) == (
        f"model.num_heads: {num_heads} does not divide model.d_model=24; divisors near it are {near_ones}"
    )
