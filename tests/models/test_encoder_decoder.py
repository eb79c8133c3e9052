"""What must hold for every encoder-decoder: causality, padding, windows, chunks, and what decoder layers look at."""

import pytest
import torch

from crosslight.decoding.greedy import GreedySearch
from crosslight.errors import ConfigError, DataError
from crosslight.losses import LabelSmoothedCrossEntropy
from crosslight.nn.residual import PostNorm, PreNorm

SOURCE = torch.tensor([[5, 3, 9, 2, 7], [8, 1, 4, 0, 0]])
TARGET = torch.tensor([[1, 6, 12, 3, 7, 2, 9, 4, 11, 5], [1, 9, 4, 8, 10, 3, 3, 12, 2, 6]])
RESIDUALS = pytest.mark.parametrize("residual", [PostNorm, PreNorm])


def same(found: torch.Tensor, expected: torch.Tensor, atol: float = 1e-5) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def padded(row: torch.Tensor, length: int, left: bool = False) -> torch.Tensor:
    zeros = torch.zeros(length - len(row), dtype=torch.long)
    return torch.cat([zeros, row] if left else [row, zeros])


@RESIDUALS
def test_future_tokens_do_not_change_the_past(build, positions, residual):
    model = build(positions=positions, residual=residual)
    before = model(SOURCE, TARGET)
    for t in (1, 4, 9):
        changed = TARGET.clone()
        changed[:, t:] = changed[:, t:] % 12 + 1
        after = model(SOURCE, changed)
        same(after[:, :t], before[:, :t], atol=1e-6)
        assert ((after - before)[:, t].abs().amax(dim=-1) > 1e-3).all()


def test_padding_the_source_or_the_target_changes_nothing(build, positions):
    model = build(positions=positions)
    alone = model(SOURCE[1:, :3], TARGET[1:, :6])
    same(model(SOURCE[1:], TARGET[1:, :6]), alone)
    same(model(SOURCE, torch.stack([TARGET[0], padded(TARGET[1, :6], 10)]))[1:, :6], alone)
    assert (model(SOURCE[1:, :2], TARGET[1:, :6]) - alone).abs().max() > 1e-3


@pytest.mark.parametrize("left", [False, True], ids=["right_padded", "left_padded"])
def test_batch_mates_and_the_side_of_padding_do_not_change_log_probabilities(build, positions, left):  # E08
    model = build(positions=positions, encoder_window=8)
    torch.manual_seed(2)
    source, target = torch.randint(1, 11, (6,)), torch.randint(1, 13, (6,))
    long_source, long_target = torch.randint(1, 11, (50,)), torch.randint(1, 13, (50,))
    alone = model(source[None], target[None]).log_softmax(-1)[0]
    together = model(
        torch.stack([long_source, padded(source, 50, left)]), torch.stack([long_target, padded(target, 50)])
    )
    same(together[1, :6].log_softmax(-1), alone)


@RESIDUALS
def test_decoding_in_any_chunks_equals_one_pass(build, positions, residual):  # E03
    model = build(positions=positions, residual=residual)
    at_once = model(SOURCE, TARGET)
    for size in (1, 3):
        state, pieces = model.encode(SOURCE), []
        for chunk in TARGET.split(size, dim=1):
            logits, state = model.decode(chunk, state)
            pieces.append(logits)
        same(torch.cat(pieces, dim=1), at_once)
        assert state.length == 10


@pytest.mark.parametrize("window", [0, 1, 2])
def test_encoder_sees_exactly_as_far_as_its_window_times_its_depth(build, positions, window):
    model = build(positions=positions, encoder_window=window, num_encoder_layers=2)
    source = torch.tensor([[5, 3, 9, 2, 7, 1, 4, 8, 6, 10, 3, 0]])
    memory = []
    model.encoder.register_forward_hook(lambda *call: memory.append(call[-1]))
    model.encode(source)
    for j in (0, 5, 10):
        changed = source.clone()
        changed[0, j] = 11 - changed[0, j]
        model.encode(changed)
        difference = (memory.pop() - memory[0])[0].abs().amax(dim=-1)
        for i in range(11):
            reachable = abs(i - j) <= 2 * window
            assert (difference[i] > 1e-4) if reachable else (difference[i] == 0), (i, j)


def test_window_over_the_whole_source_is_no_window(build):
    windowed, free = build(encoder_window=4), build()
    assert torch.equal(windowed(SOURCE, TARGET), free(SOURCE, TARGET))
    assert not torch.allclose(build(encoder_window=3)(SOURCE, TARGET), free(SOURCE, TARGET), atol=1e-3)


@RESIDUALS
def test_every_decoder_layer_projects_the_final_encoder_output_once(build, monkeypatch, residual):
    model = build(residual=residual)
    final, seen = [], []
    model.encoder.register_forward_hook(lambda *call: final.append(call[-1]))
    for layer in model.decoder.layers:
        project = layer.cross_attention.project
        monkeypatch.setattr(layer.cross_attention, "project", lambda x, own=project: seen.append(x) or own(x))
    state = model.encode(SOURCE)
    for chunk in TARGET.split(4, dim=1):
        _, state = model.decode(chunk, state)
    assert len(final) == 1
    assert [x is final[0] for x in seen] == [True, True, True]


@RESIDUALS
def test_only_the_final_encoder_output_matters_to_the_decoder(build, residual):
    model = build(residual=residual, num_encoder_layers=3)
    final: list[torch.Tensor] = []
    hook = model.encoder.register_forward_hook(lambda *call: final.append(call[-1]))
    before = model.encode(SOURCE)
    logits, _ = model.decode(TARGET, before)
    hook.remove()

    disturbed = [
        layer.register_forward_hook(lambda module, inputs, output: output + torch.randn_like(output))
        for layer in model.encoder.layers
    ]
    assert (model(SOURCE, TARGET) - logits).abs().max() > 0.01  # an intermediate output does reach the final one
    restored = model.encoder.register_forward_hook(lambda *call: final[0])
    assert torch.equal(model(SOURCE, TARGET), logits)  # and matters through it alone
    for hook in (*disturbed, restored):
        hook.remove()

    model.encoder.register_forward_hook(lambda module, inputs, output: output + 1)
    after = model.encode(SOURCE)
    for old, new in zip(before.layers, after.layers, strict=True):
        assert (new.source[0] - old.source[0]).abs().amin(dim=(0, 2)).max() > 1e-3
        assert (new.source[1] - old.source[1]).abs().amin(dim=(0, 2)).max() > 1e-3
    assert (model.decode(TARGET, after)[0] - logits).abs().max() > 0.01


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_sentence_without_tokens_keeps_everything_finite_and_its_neighbour_as_it_was(build, positions, dtype, autocast):
    # E01
    model = build(positions=positions).train()
    if not autocast:
        model = model.to(dtype)
    source = torch.stack([torch.zeros(5, dtype=torch.long), SOURCE[0]])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast and dtype == torch.bfloat16):
        together, alone = model(source, TARGET), model(SOURCE[:1], TARGET[1:])
    assert together.isfinite().all()
    same(together[1:].float(), alone.float(), atol=1e-5 if dtype == torch.float32 else 0.1)
    loss = LabelSmoothedCrossEntropy(0.1, 0)(together, TARGET).total
    loss.backward()
    assert loss.isfinite()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [1, 64])
def test_training_step_in_half_precision_is_that_of_full_precision(build, length, dtype):  # E04
    torch.manual_seed(4)
    source, target = torch.randint(1, 11, (2, length)), torch.randint(1, 13, (2, length))
    source[1, length // 2 + 1 :] = target[1, length // 2 + 1 :] = 0
    losses = {}
    for kind in (torch.float32, dtype):
        model = build(residual=PreNorm).to(kind).train()
        loss = LabelSmoothedCrossEntropy(0.1, 0)(model(source, target), target)
        (loss.total / loss.count).backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
        losses[kind] = (loss.total / loss.count).item()
    assert losses[dtype] == pytest.approx(losses[torch.float32], rel=0.03)


def test_learned_positions_end_in_a_clear_error_and_cap_a_search_that_never_ends(build):  # E06
    model = build(positions="learned")
    assert model.max_positions == 64
    torch.manual_seed(5)
    source = torch.randint(1, 11, (2, 65))
    with pytest.raises(DataError, match=r"a sequence of 65 tokens does not fit model\.positions\.max_positions=64"):
        model.encode(source)
    state = model.encode(source[:, :60])
    for _ in range(64):
        _, state = model.decode(TARGET[:, :1], state)
    with pytest.raises(DataError, match=r"a sequence of 65 tokens does not fit model\.positions\.max_positions=64"):
        model.decode(TARGET[:, :1], state)

    def never_ends(tokens, state):
        logits, state = model.decode(tokens, state)
        return logits.index_fill(-1, torch.tensor([2]), -1e4), state

    search = GreedySearch(length_penalty=0.0, length_offset=5.0, max_len_factor=2.0, max_len_extra=50)
    state = model.encode(source[:, :60])
    limits = search.max_lengths(state.source_lengths, model.max_positions)
    found = search(never_ends, state, bos_id=1, eos_id=2, max_lengths=limits)
    assert [len(hypotheses[0].ids) for hypotheses in found] == [63, 63]


@pytest.mark.parametrize("kind", ["none", "sinusoidal", "rotary"])
def test_positions_that_follow_from_a_formula_have_no_limit(build, kind):
    model = build(positions=kind)
    assert model.max_positions is None
    torch.manual_seed(6)
    source, target = torch.randint(1, 11, (2, 300)), torch.randint(1, 13, (2, 280))
    assert model(source, target).isfinite().all()


def test_heads_that_do_not_divide_are_the_error_whatever_the_positions(build, positions):
    with pytest.raises(ConfigError, match=r"model\.num_heads: 7 does not divide model\.d_model=12; .* are 4 and 6"):
        build(positions=positions, num_heads=7)


def test_dropout_acts_in_training_only(build):
    model = build(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1)
    assert torch.equal(model(SOURCE, TARGET), build()(SOURCE, TARGET))
    model.train()
    assert not torch.allclose(model(SOURCE, TARGET), model(SOURCE, TARGET), atol=1e-3)
