"""Subword sampling and BPE-dropout: other pieces in each epoch, yet a function of seed, epoch and sentence alone."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
from texts import Text, recipe

from crosslight.batches import Batch
from crosslight.data.batching import plan_epoch
from crosslight.data.collate import Resampled, collate
from crosslight.data.corpus import Pairs
from crosslight.data.encoded import EncodedPairs, encode_pairs
from crosslight.data.loaders import TrainingLoader, evaluation_loader
from crosslight.tokenizers.base import Sampling, Tokenizers

ENGLISH = ["a", "two", "young", "men", "dog", "children", "playing", "in", "the", "street", "running", "football"]
GERMAN = ["ein", "zwei", "junger", "Männer", "Hunde", "Kinder", "spielen", "auf", "der", "Straße", "Fußball", "rennen"]
TAGS = ("<2de>", "<2fr>")
KINDS = {"bpe": 0.3, "unigram": 0.02}
"""The kinds of model and how much is sampled."""


def lines(words: list[str], count: int) -> list[str]:
    draw = random.Random(5)
    return [" ".join(draw.choices(words, k=draw.randint(2, 9))) for _ in range(count)]


SOURCE, TARGET = lines(ENGLISH, 60), lines(GERMAN, 60)


@pytest.fixture(scope="module", params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def tokenizers(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    settings = {"vocab_size": 70, "hard_vocab_limit": False, "joint": False}
    small = recipe(tmp_path_factory.mktemp("cache"), model_type=kind, sampling_alpha=KINDS[kind], **settings)
    assert small.sampling == Sampling(KINDS[kind], -1)
    return small.fit(Text(SOURCE, TARGET), TAGS)


@pytest.fixture(scope="module")
def data(tokenizers: Tokenizers) -> EncodedPairs:
    """Sixty pairs, the second half tagged."""
    halves = Pairs("first", SOURCE[:30], TARGET[:30]), Pairs("second", SOURCE[30:], TARGET[30:], tag="<2fr>")
    return encode_pairs(halves, tokenizers)


def resampled(kind: str, tokenizers: Tokenizers, **changed: Any) -> Resampled:
    tag_ids = frozenset(tokenizers.source.symbol_id(tag) for tag in TAGS)
    settings = {"sampling": Sampling(KINDS[kind], -1), "seed": 7, "max_len": 200, "tag_ids": tag_ids}
    return Resampled(**{**settings, **changed})


def ids_of(batches: Iterator[Batch] | list[Batch], tokenizers: Tokenizers) -> dict[int, tuple[list[int], list[int]]]:
    """The ids of each sentence without padding, both sides."""
    pads = tokenizers.source.pad_id, tokenizers.target.pad_id
    found = {}
    for batch in batches:
        for row, sentence in enumerate(batch.sentence_ids):
            sides = (batch.source[row].tolist(), batch.target_out[row].tolist())
            found[sentence] = tuple([i for i in ids if i != pad] for ids, pad in zip(sides, pads, strict=True))
    return found


def sampled(data: EncodedPairs, tokenizers: Tokenizers, drawn: Resampled | None, epoch: int, rows: Any = None) -> Any:
    """The ids of each sentence in a batch with all others."""
    rows = np.arange(len(data)) if rows is None else np.array(rows)
    return ids_of([collate(data, rows, tokenizers, epoch=epoch, index=0, resampled=drawn)], tokenizers)


def test_a_draw_is_the_same_in_any_order_and_whatever_was_drawn_before(kind, tokenizers, data) -> None:
    drawn = resampled(kind, tokenizers)
    first = sampled(data, tokenizers, drawn, epoch=3)
    assert sampled(data, tokenizers, resampled(kind, tokenizers), epoch=3) == first
    sentencepiece.set_random_generator_seed(123)
    tokenizers.source.sample(SOURCE[0], drawn.sampling, seed=9)
    rows = np.random.default_rng(1).permutation(60)
    assert sampled(data, tokenizers, drawn, epoch=3, rows=rows) == first
    for sentence in (41, 5):
        assert sampled(data, tokenizers, drawn, epoch=3, rows=[sentence]) == {sentence: first[sentence]}


def test_a_draw_is_the_same_in_every_thread(kind, tokenizers, data) -> None:
    drawn = resampled(kind, tokenizers)
    first = sampled(data, tokenizers, drawn, epoch=3)
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(lambda row: sampled(data, tokenizers, drawn, 3, [row]), range(60)))
    assert {row: ids for part in parts for row, ids in part.items()} == first


def test_a_draw_is_the_same_in_another_process(kind, tokenizers, data, tmp_path: Path) -> None:
    """A seed from Python's `hash` of a text would differ there."""
    tokenizers.save(tmp_path)
    program = f"""
import json
from pathlib import Path
import numpy as np
from crosslight.data.collate import Resampled
from crosslight.tokenizers.base import Sampling
from crosslight.tokenizers.load import load_tokenizers
tokenizer, nothing = load_tokenizers(Path({str(tmp_path)!r})).source, np.empty(0, np.int32)
drawn = Resampled(Sampling({KINDS[kind]}, -1), 7, 200, frozenset())
texts = json.loads({json.dumps(SOURCE[:30])!r})
print(json.dumps([drawn(tokenizer, t, nothing, epoch=3, sentence=i, side=0) for i, t in enumerate(texts)]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = sampled(data, tokenizers, resampled(kind, tokenizers), epoch=3)
    assert json.loads(done.stdout) == [here[row][0] for row in range(30)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_workers_draw_the_same(kind, tokenizers, data, num_workers: int) -> None:
    """Over two epochs of one loader, as training drives it."""
    lengths = data.source_lengths, data.target_lengths
    loader = TrainingLoader(
        data,
        tokenizers,
        plan=lambda epoch: plan_epoch(*lengths, 120, seed=7, epoch=epoch),
        rank=0,
        world=1,
        virtual_ranks=1,
        accumulate=2,
        num_workers=num_workers,
        pin_memory=False,
        resampled=resampled(kind, tokenizers),
    )
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        found = ids_of((batch for window in loader for batch in window), tokenizers)
        assert found == sampled(data, tokenizers, resampled(kind, tokenizers), epoch=epoch)


def test_another_epoch_or_seed_gives_most_sentences_other_pieces(kind, tokenizers, data) -> None:
    draws = [
        sampled(data, tokenizers, resampled(kind, tokenizers, seed=seed), epoch=epoch)
        for seed, epoch in [(7, 0), (7, 1), (8, 0), (8, 1)]
    ]
    best = sampled(data, tokenizers, None, epoch=0)
    for number, one in enumerate(draws):
        for other in (best, *draws[:number]):
            for side in (0, 1):
                assert sum(one[row][side] != other[row][side] for row in range(60)) > 40


def test_equal_sentences_and_the_two_sides_are_drawn_apart(kind, tokenizers) -> None:
    text = SOURCE[0] + " " + SOURCE[1]
    both = Tokenizers(tokenizers.source, tokenizers.source, tokenizers.kind)
    pairs = encode_pairs(Pairs("equal", [text] * 20, [text] * 20), both)
    found = sampled(pairs, both, resampled(kind, both), epoch=0)
    assert len({tuple(source) for source, _ in found.values()}) > 10
    assert sum(source != target for source, target in found.values()) > 10


def test_a_draw_decodes_to_the_text_and_ends_with_eos(kind, tokenizers, data) -> None:
    for epoch in range(3):
        found = sampled(data, tokenizers, resampled(kind, tokenizers), epoch=epoch)
        for side, (tokenizer, texts) in enumerate([(tokenizers.source, SOURCE), (tokenizers.target, TARGET)]):
            ids = [found[row][side] for row in range(60)]
            assert tokenizer.decode_batch(ids) == texts
            assert all(i[-1] == tokenizer.eos_id and i.count(tokenizer.eos_id) == 1 for i in ids)


def test_target_in_is_the_drawn_target_shifted(kind, tokenizers, data) -> None:
    batch = collate(data, np.arange(9), tokenizers, epoch=1, index=0, resampled=resampled(kind, tokenizers))
    target = tokenizers.target
    for fed, asked in zip(batch.target_in.tolist(), batch.target_out.tolist(), strict=True):
        length = asked.index(target.eos_id) + 1
        assert fed[:length] == [target.bos_id, *asked[: length - 1]]
        assert set(fed[length:]) | set(asked[length:]) <= {target.pad_id}
    assert batch.references == tuple(TARGET[:9])


def test_a_tag_stays_first_and_stands_on_no_target(kind, tokenizers, data) -> None:
    french = tokenizers.source.symbol_id("<2fr>")
    for epoch in range(3):
        found = sampled(data, tokenizers, resampled(kind, tokenizers), epoch=epoch)
        assert all(french not in found[row][0] for row in range(30))
        assert all(found[row][0][0] == french and found[row][0].count(french) == 1 for row in range(30, 60))
        assert all(french not in found[row][1] for row in range(60))


def test_what_a_tag_precedes_is_drawn_as_without_it(kind, tokenizers, data) -> None:
    untagged = encode_pairs(
        [Pairs("first", SOURCE[:30], TARGET[:30]), Pairs("second", SOURCE[30:], TARGET[30:])], tokenizers
    )
    drawn = resampled(kind, tokenizers)
    with_tag, without = (sampled(each, tokenizers, drawn, epoch=2) for each in (data, untagged))
    assert [with_tag[row][0][1:] for row in range(30, 60)] == [without[row][0] for row in range(30, 60)]


def test_a_draw_above_the_limit_falls_back_to_the_best(kind, tokenizers, data) -> None:
    best, free = (sampled(data, tokenizers, d, epoch=0) for d in (None, resampled(kind, tokenizers)))
    limit = 25
    limited = sampled(data, tokenizers, resampled(kind, tokenizers, max_len=limit), epoch=0)
    taken = {True: 0, False: 0}
    for row in range(60):
        for side in (0, 1):
            tagged = side == 0 and row >= 30
            over = len(free[row][side]) - 1 - tagged > limit  # neither EOS nor the tag counts
            assert limited[row][side] == (best if over else free)[row][side]
            taken[over] += 1
    assert min(taken.values()) > 10
    assert sampled(data, tokenizers, resampled(kind, tokenizers, max_len=0), epoch=0) == best


def test_without_sampling_a_batch_is_what_was_prepared(kind, tokenizers, data) -> None:
    best = sampled(data, tokenizers, None, epoch=0)
    assert best == sampled(data, tokenizers, None, epoch=1)
    assert all(best[row] == (data.source[row].tolist(), data.target[row].tolist()) for row in range(60))


@pytest.mark.parametrize("world", [1, 2])
def test_evaluation_never_samples(kind, tokenizers, data, world: int) -> None:
    ranks = [evaluation_loader(data, tokenizers, max_tokens=300, rank=rank, world=world) for rank in range(world)]
    found = ids_of([batch for loader in ranks for batch in loader], tokenizers)
    assert found == sampled(data, tokenizers, None, epoch=0)


def test_bpe_dropout_goes_from_the_best_pieces_to_single_characters(kind, tokenizers, data) -> None:
    """Provilkov et al. 2020: the probability that a merge is left out; at 0 it is BPE itself."""
    if kind != "bpe":
        pytest.skip("of BPE")
    best = sampled(data, tokenizers, None, epoch=0)
    draws = [
        sampled(data, tokenizers, resampled(kind, tokenizers, sampling=Sampling(alpha, -1)), epoch=0)
        for alpha in (1e-9, 0.1, 0.5, 0.9, 1 - 1e-7)
    ]
    assert draws[0] == best
    lengths = [sum(len(source) for source, _ in draw.values()) for draw in draws]
    assert lengths == sorted(lengths)
    characters = sum(len(line) + 2 for line in SOURCE) + 30  # a sign for the first space, EOS, and 30 tags
    assert lengths[-1] == pytest.approx(characters, rel=0.01)


def test_the_larger_alpha_the_nearer_a_unigram_draw_is_to_the_best(kind, tokenizers, data) -> None:
    """Kudo 2018, section 3.2: at infinity the best segmentation, at 0 all alike."""
    if kind != "unigram":
        pytest.skip("of unigram models")
    best = sampled(data, tokenizers, None, epoch=0)

    def as_best(**sampling: Any) -> int:
        drawn = resampled(kind, tokenizers, sampling=Sampling(**sampling))
        return sum(ids == best[row] for row, ids in sampled(data, tokenizers, drawn, epoch=0).items())

    counts = [as_best(alpha=alpha, nbest=-1) for alpha in (0.1, 1.0, 100.0)]
    assert counts == sorted(counts)
    assert counts[0] < 10
    assert counts[-1] == 60
    assert as_best(alpha=0.1, nbest=2) > counts[0], "two to choose from, of which one is the best"


def test_seeding_each_draw_does_not_bend_the_distribution(kind, tokenizers) -> None:
    """The lengths of 1000 draws, each from a seed of its own, against the library's one long stream."""
    drawn, text, best = resampled(kind, tokenizers), SOURCE[0], np.empty(0, np.int32)
    own = [len(drawn(tokenizers.source, text, best, epoch=0, sentence=i, side=0)) - 1 for i in range(1000)]
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizers.source.to_bytes())
    sentencepiece.set_random_generator_seed(11)
    theirs = [len(model.encode(text, enable_sampling=True, alpha=KINDS[kind], nbest_size=-1)) for _ in range(1000)]
    assert np.std(theirs) > 0.5
    assert np.mean(own) == pytest.approx(np.mean(theirs), abs=5 * np.std(theirs) / np.sqrt(500))
    assert np.std(own) == pytest.approx(np.std(theirs), rel=0.2)
