"""The decoder's state is a value whose rows can be chosen: expanded, reordered and shrunk, as a search does."""

from dataclasses import FrozenInstanceError

import pytest
import torch

SOURCE = torch.tensor([[5, 3, 9, 2, 7], [8, 1, 4, 0, 0]])


def test_selected_rows_go_on_as_if_each_had_run_alone(build, positions):
    model = build(positions=positions)
    state, owners, histories = model.encode(SOURCE), [0, 1], [[], []]
    for rows, tokens in [
        ([0, 0, 1, 1, 1], [[1, 4], [1, 7], [1, 2], [1, 9], [1, 3]]),  # expand a fresh state, two tokens at once
        ([4, 0, 2, 0], [[6], [12], [5], [8]]),  # reorder, one hypothesis twice, one sentence's others dropped
        ([2, 1, 0], [[10], [3], [11]]),
        ([1], [[2]]),  # shrink
        ([0, 0], [[4], [5]]),
    ]:
        state = state.select(torch.tensor(rows))
        owners = [owners[r] for r in rows]
        histories = [histories[r] + new for r, new in zip(rows, tokens, strict=True)]
        logits, state = model.decode(torch.tensor(tokens), state)
        assert (state.num_rows, state.length) == (len(rows), len(histories[0]))
        assert state.source_lengths.tolist() == [[5, 3][owner] for owner in owners]
        for row, (owner, history) in enumerate(zip(owners, histories, strict=True)):
            source = SOURCE[owner : owner + 1, : [5, 3][owner]]
            alone = model(source, torch.tensor([history]))[0, -len(tokens[0]) :]
            torch.testing.assert_close(logits[row], alone, rtol=0, atol=1e-5)


def test_two_decodes_from_one_state_do_not_disturb_each_other(build, positions):
    model = build(positions=positions)
    shared = model.encode(SOURCE)
    _, shared = model.decode(torch.tensor([[1, 4], [1, 4]]), shared)
    kept = [tensor.clone() for layer in shared.layers for pair in (layer.source, layer.target) for tensor in pair]
    roads = [torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([[11, 2, 3], [12, 2, 4]])]
    states, found = [shared, shared], [[], []]
    for step in range(3):
        for road in (0, 1):
            logits, states[road] = model.decode(roads[road][:, step : step + 1], states[road])
            found[road].append(logits)
    for road in (0, 1):
        whole = torch.cat([torch.tensor([[1, 4], [1, 4]]), roads[road]], dim=1)
        torch.testing.assert_close(torch.cat(found[road], dim=1), model(SOURCE, whole)[:, 2:], rtol=0, atol=1e-5)
    now = [tensor for layer in shared.layers for pair in (layer.source, layer.target) for tensor in pair]
    assert shared.length == 2
    assert all(torch.equal(old, new) for old, new in zip(kept, now, strict=True))


def test_state_cannot_be_assigned_to(build):
    state = build().encode(SOURCE)
    with pytest.raises(FrozenInstanceError):
        state.length = 3
    with pytest.raises(FrozenInstanceError):
        state.layers[0].target = None
