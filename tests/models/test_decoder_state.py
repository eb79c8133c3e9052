"""The decoder's state is a value whose rows can be chosen: expanded, reordered and shrunk, as a search does."""

from dataclasses import FrozenInstanceError

import pytest
import torch

SOURCE = torch.tensor([[5, 3, 9, 2, 7], [8, 1, 4, 0, 0]])


def in_turns(model, shared, roads):
    """The logits along each road, a token at a time, all from one state; the roads take turns."""
    states, found = [shared for _ in roads], [[] for _ in roads]
    for step in range(roads[0].shape[1]):
        for number, road in enumerate(roads):
            logits, states[number] = model.decode(road[:, step : step + 1], states[number])
            found[number].append(logits)
    return [torch.cat(logits, dim=1) for logits in found]


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
    for road, found in zip(roads, in_turns(model, shared, roads), strict=True):
        whole = torch.cat([torch.tensor([[1, 4], [1, 4]]), road], dim=1)
        torch.testing.assert_close(found, model(SOURCE, whole)[:, 2:], rtol=0, atol=1e-5)
    now = [tensor for layer in shared.layers for pair in (layer.source, layer.target) for tensor in pair]
    assert shared.length == 2
    assert all(torch.equal(old, new) for old, new in zip(kept, now, strict=True))


@torch.no_grad()
def test_places_that_branch_go_on_as_if_each_had_run_alone(build, positions):
    """The state of a search: sentences leave with all their places, places continue any place of their sentence."""
    model = build(positions=positions)
    state, owners, histories = model.encode(SOURCE), [0, 1], [[], []]
    rng = torch.Generator().manual_seed(1)
    moves = [None, ("branch", [[0, 0, 0], [0, 0, 0]]), ("branch", [[2, 0, 0], [1, 1, 0]]), ("select", [1, 0, 1])]
    moves += [("branch", torch.randint(3, (3, 3), generator=rng).tolist()) for _ in range(12)]
    moves += [("select", [2]), ("branch", [[1, 0]]), ("branch", [[0, 1, 1, 0]]), ("select", [0, 0]), None, None]
    places = 1
    for step, move in enumerate(moves):
        if move is not None:
            kind, numbers = move
            state = getattr(state, kind)(torch.tensor(numbers))
            chosen = [s * places + p for s in numbers for p in range(places)] if kind == "select" else []
            if kind == "branch":
                chosen = [s * places + parent for s, parents in enumerate(numbers) for parent in parents]
                places = len(numbers[0])
            owners, histories = [owners[i] for i in chosen], [histories[i] for i in chosen]
        tokens = torch.randint(1, 13, (len(owners), 2 if step == 5 else 1), generator=rng)
        histories = [[*history, *new] for history, new in zip(histories, tokens.tolist(), strict=True)]
        logits, state = model.decode(tokens, state)
        assert (state.num_rows, state.length) == (len(owners), len(histories[0]))
        assert state.source_lengths.tolist() == [[5, 3][owner] for owner in owners]
        for row, (owner, history) in enumerate(zip(owners, histories, strict=True)):
            source = SOURCE[owner : owner + 1, : [5, 3][owner]]
            alone = model(source, torch.tensor([history]))[0, -tokens.shape[1] :]
            torch.testing.assert_close(logits[row], alone, rtol=0, atol=1e-5)


@torch.no_grad()
def test_two_searches_from_one_state_do_not_disturb_each_other(build):
    model = build()
    _, shared = model.decode(torch.tensor([[1], [4]]), model.encode(SOURCE))
    for length in range(1, 20):  # in some of these states there is room for the next step, in others not
        roads = [torch.randint(1, 13, (2, 3)) for _ in range(2)]
        for road, found in zip(roads, in_turns(model, shared, roads), strict=True):
            torch.testing.assert_close(found, model.decode(road, shared)[0], rtol=0, atol=1e-6)
        assert shared.length == length
        _, shared = model.decode(torch.randint(1, 13, (2, 1)), shared)


@torch.no_grad()
def test_a_source_without_any_token_adds_nothing_in_single_steps_too(build):
    model = build()
    empty = torch.zeros((1, 4), dtype=torch.long)
    whole, state = model(empty, torch.tensor([[1, 6, 3]])), model.encode(empty)
    logits = []
    for token in (1, 6, 3):
        step, state = model.decode(torch.tensor([[token]]), state)
        logits.append(step)
    torch.testing.assert_close(torch.cat(logits, dim=1), whole, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_forced_prefix_goes_on_in_single_steps(build, positions):
    model = build(positions=positions)
    target = torch.tensor([[1, 6, 12, 3, 7], [1, 9, 4, 8, 10]])
    logits, state = model.decode(target[:, :3], model.encode(SOURCE))
    for t in (3, 4):
        step, state = model.decode(target[:, t : t + 1], state)
        logits = torch.cat([logits, step], dim=1)
    torch.testing.assert_close(logits, model(SOURCE, target), rtol=0, atol=1e-5)


def test_state_cannot_be_assigned_to(build):
    state = build().encode(SOURCE)
    with pytest.raises(FrozenInstanceError):
        state.length = 3
    with pytest.raises(FrozenInstanceError):
        state.layers[0].target = None
