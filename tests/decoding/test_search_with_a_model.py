"""Search with a random-weight EncoderDecoder: batching (H01), the cache (H06), forced scores, position limit (E06)."""

from dataclasses import dataclass, replace
from functools import partial
from zlib import crc32

import pytest
import torch
from torch import Tensor

from crosslight.data.collate import pad
from crosslight.decoding.beam import BeamSearch
from crosslight.decoding.greedy import GreedySearch
from crosslight.decoding.protocols import Hypothesis, Search
from crosslight.models.encoder_decoder import EncoderDecoder
from crosslight.nn.positions import LearnedPositions, SinusoidalPositions
from crosslight.nn.residual import PreNorm
from crosslight.tasks.evaluation import translate_state
from crosslight.tokenizers.integers import BOS, EOS, PAD, IntegerTokenizer

TOKENIZER = IntegerTokenizer(8)
LENGTHS = [3, 19, 1, 7, 30, 2, 12, 5, 9, 1, 23, 4, 16, 6, 11, 27, 8]


def random_model(positions=SinusoidalPositions) -> EncoderDecoder:
    """Two layers of large weights, drawn by name: hypotheses differ and beams swap, however we initialize."""
    model = EncoderDecoder(
        d_model=24,
        d_ff=40,
        num_heads=3,
        num_encoder_layers=2,
        num_decoder_layers=2,
        activation="relu",
        dropout=0.1,
        attention_dropout=0.1,
        activation_dropout=0.1,
        embedding_dropout=0.1,
        layer_drop=0.0,
        tie="none",
        encoder_window=None,
        positions=positions,
        residual=PreNorm,
        source_vocab_size=TOKENIZER.vocab_size,
        target_vocab_size=TOKENIZER.vocab_size,
        pad_id=PAD,
    )
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.ndim == 2:
                generator = torch.Generator().manual_seed(crc32(name.encode()))
                weights.copy_(torch.randn(weights.shape, generator=generator) * weights.shape[1] ** -0.5)
        model.output.weight[EOS] *= 1.5
    return model.eval()


@pytest.fixture(scope="module")
def model() -> EncoderDecoder:
    return random_model()


def sentences(lengths: list[int] = LENGTHS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [[*torch.randint(3, 11, (n - 1,), generator=generator).tolist(), EOS] for n in lengths]


def search_of(size: int, alpha: float = 0.6, n_best: int = 0) -> Search:
    if size == 0:
        return GreedySearch(length_penalty=alpha, length_offset=5.0, max_len_factor=1.0, max_len_extra=4)
    return BeamSearch(
        beam_size=size,
        n_best=n_best or size,
        length_penalty=alpha,
        length_offset=5.0,
        max_len_factor=1.0,
        max_len_extra=4,
    )


def translated(model: EncoderDecoder, batch: list[list[int]], search: Search) -> list[list[Hypothesis]]:
    return translate_state(model, model.encode(pad(batch, PAD)), search, TOKENIZER)


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    assert [[h.ids for h in hypotheses] for hypotheses in found] == [[h.ids for h in one] for one in expected]
    for one, other in zip(found, expected, strict=True):
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)
        assert [h.log_prob for h in one] == pytest.approx([h.log_prob for h in other], abs=1e-4)


def test_hypotheses_do_not_depend_on_how_sentences_are_batched(model: EncoderDecoder) -> None:
    batch, search = sentences(), search_of(5)
    whole = translated(model, batch, search)
    assert len({len(hypotheses[0].ids) for hypotheses in whole}) > 5, "the sentences must end at different steps"
    assert len({hypotheses[0].ids for hypotheses in whole}) > 10
    assert any(len(found[0].ids) + 1 < len(source) + 4 for found, source in zip(whole, batch, strict=True))
    for size in (1, 4):
        parts = [translated(model, batch[i : i + size], search) for i in range(0, len(batch), size)]
        assert_same([hypotheses for part in parts for hypotheses in part], whole)
    assert_same(translated(model, batch[::-1], search)[::-1], whole)


@dataclass(frozen=True)
class Prefix:
    """The state of a search without a cache: all that was read and written so far."""

    source: Tensor
    written: Tensor
    places: int = 1

    @property
    def num_rows(self) -> int:
        return self.source.shape[0]

    def select(self, sentences: Tensor) -> "Prefix":
        rows = (sentences[:, None] * self.places + torch.arange(self.places)).flatten()
        return Prefix(self.source[rows], self.written[rows], self.places)

    def branch(self, parents: Tensor) -> "Prefix":
        rows = (torch.arange(len(parents))[:, None] * self.places + parents).flatten()
        return Prefix(self.source[rows], self.written[rows], parents.shape[1])


def step_without_cache(model: EncoderDecoder, tokens: Tensor, state: Prefix) -> tuple[Tensor, Prefix]:
    state = replace(state, written=torch.cat([state.written, tokens], dim=1))
    return model(state.source, state.written)[:, -1:], state


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_cache_on_equals_cache_off(model: EncoderDecoder, size: int) -> None:
    batch = pad(sentences([6, 1, 14, 3, 9, 1, 11, 4]), PAD)  # a length of 1 is a blank line: EOS alone
    search = search_of(size)
    cached = translate_state(model, model.encode(batch), search, TOKENIZER)
    limits = search.max_lengths((batch != PAD).sum(dim=1), None)
    start = Prefix(batch, torch.empty((8, 0), dtype=torch.long))
    recomputed = search(partial(step_without_cache, model), start, bos_id=BOS, eos_id=EOS, max_lengths=limits)
    assert_same(cached, recomputed)
    assert len({len(hypotheses[0].ids) for hypotheses in cached}) > 3


def plain_beam(model: EncoderDecoder, source: list[int], size: int, limit: int) -> list[tuple[int, ...]]:
    """Beam search as one would write it down: one sentence, lists, every prefix read anew. Best first, alpha 0.6."""
    places, finished = size, []
    beam: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for length in range(1, limit + 1):
        candidates = []
        for total, ids in beam:
            log_probs = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1].log_softmax(dim=-1).tolist()
            allowed = [EOS] if length == limit else range(len(log_probs))
            candidates += [(total + log_probs[token], (*ids, token)) for token in allowed]
        best = sorted(candidates, reverse=True)[:places]
        ended = [(total / ((5 + length) / 6) ** 0.6, ids[:-1]) for total, ids in best if ids[-1] == EOS]
        beam = [(total, ids) for total, ids in best if ids[-1] != EOS]
        finished, places = finished + ended, places - len(ended)
    return [ids for _, ids in sorted(finished, reverse=True)]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_the_search_finds_what_the_plain_one_finds(model: EncoderDecoder, size: int) -> None:
    batch = sentences([6, 1, 14, 3, 9, 2, 11, 20])
    found = translated(model, batch, search_of(size))
    with torch.no_grad():
        plain = [plain_beam(model, source, size, len(source) + 4) for source in batch]
    assert [[h.ids for h in hypotheses] for hypotheses in found] == plain
    (best,) = zip(*translated(model, batch, search_of(size, n_best=1)), strict=True)
    assert [h.ids for h in best] == [ids[0] for ids in plain]


@pytest.mark.parametrize("size", [0, 1, 4])
def test_log_prob_is_that_of_the_sequence_under_teacher_forcing(model: EncoderDecoder, size: int) -> None:
    batch = sentences(LENGTHS[:6])
    for source, hypotheses in zip(batch, translated(model, batch, search_of(size)), strict=True):
        assert len(hypotheses) == max(size, 1)
        for hypothesis in hypotheses:
            target = torch.tensor([[BOS, *hypothesis.ids, EOS]])
            with torch.no_grad():
                log_probs = model(torch.tensor([source]), target[:, :-1]).log_softmax(dim=-1)
            forced = log_probs.gather(-1, target[:, 1:, None]).sum().item()
            assert hypothesis.log_prob == pytest.approx(forced, abs=1e-4)
            assert len(hypothesis.ids) + 1 <= len(source) + 4


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, -1.0])
def test_beam_of_one_is_greedy_with_a_model(model: EncoderDecoder, alpha: float) -> None:
    batch = sentences(LENGTHS[:8])
    assert_same(translated(model, batch, search_of(1, alpha)), translated(model, batch, search_of(0, alpha)))


@pytest.mark.parametrize("size", [0, 3])
def test_output_is_capped_at_the_position_limit(size: int) -> None:
    """Case E06: the model never wants to end, and twice the source's length does not fit its table."""
    limited = random_model(partial(LearnedPositions, max_positions=12))
    lengths: list[int] = []

    def endless(tokens: Tensor, state):
        logits, state = limited.decode(tokens, state)
        lengths.append(state.length)
        logits[..., EOS] = -60.0
        return logits, state

    search, state = search_of(size), limited.encode(pad(sentences([12, 3]), PAD))
    limits = search.max_lengths(state.source_lengths, limited.max_positions)
    assert limits.tolist() == [12, 7]
    found = search(endless, state, bos_id=BOS, eos_id=EOS, max_lengths=limits)
    assert [len(hypotheses[0].ids) + 1 for hypotheses in found] == [12, 7]
    assert max(lengths) == 12
    assert all(h.log_prob < -50 for hypotheses in found for h in hypotheses), "the forced EOS keeps its true score"
