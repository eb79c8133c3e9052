"""The numbers of a data description against counting line by line, and the page against what a browser would see."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from texts import Text, numbers, recipe

from crosslight.data.collate import collate
from crosslight.data.corpus import Pairs, arrow_text
from crosslight.data.encoded import EncodedPairs, encode_pairs, encode_side, encoded_batch, id_array
from crosslight.data.loaders import TrainingLoader
from crosslight.data.module import TranslationData
from crosslight.description.measure import (
    Description,
    describe_batches,
    describe_parts,
    describe_set,
    vocabularies_of,
)
from crosslight.description.page import STYLE, as_html, as_text
from crosslight.description.tables import length_histogram, ratio_histogram, visible
from crosslight.tokenizers.base import Tokenizers, flattened

ODD = "<script>alert(1)</script> & \x07\u202egnp\u200b"


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    """Lines of 1 to 40 words with unusual white space; both sides differ in everything."""
    rng = np.random.default_rng(3)
    words = ["lorem", "ipsum", "dolor", "sit", "amet", "été", "a"]

    def line(longest: int) -> str:
        return " ".join(rng.choice(words, rng.integers(1, longest)))

    source = [line(30) for _ in range(300)]
    target = [line(40) for _ in range(300)]
    source[5], target[6] = "\u00a0 lorem\u3000 ipsum  ", "sit  \t amet €"
    return Pairs("words", source, target)


def learnt_from(pairs: Pairs, cache: Path, *, joint: bool) -> Tokenizers:
    small = recipe(cache, vocab_size=60, hard_vocab_limit=False, joint=joint, unk_surface="?")
    learnt = Text([line for line in pairs.source if "été" in line], [line for line in pairs.target if "€" not in line])
    return small.fit(learnt, ["<2de>"])


@pytest.fixture(scope="module", params=[True, False], ids=["joint", "apart"])
def tokenizers(request: pytest.FixtureRequest, pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> Tokenizers:
    return learnt_from(pairs, tmp_path_factory.mktemp("cache"), joint=request.param)


def in_parts(pairs: Pairs, tokenizers: Tokenizers, sizes: list[int]) -> EncodedPairs:
    """The pairs in record batches of 70, so that parts begin within one."""
    source, _ = encode_side(tokenizers.source, pairs.source, None, "source")
    target, _ = encode_side(tokenizers.target, pairs.target, None, "target")
    text = pa.record_batch([arrow_text(pairs.source), arrow_text(pairs.target)], names=["source", "target"])
    whole = encoded_batch(np.arange(len(pairs)), text, id_array(flattened(source)), id_array(flattened(target)))
    batches = [whole.slice(start, 70) for start in range(0, len(pairs), 70)]
    return EncodedPairs("parts", batches, "", parts=sizes)


def test_the_numbers_of_a_set_are_those_of_counting_line_by_line(pairs: Pairs, tokenizers: Tokenizers) -> None:
    found = describe_set("words", encode_pairs(pairs, tokenizers), tokenizers)
    assert found.pairs == 300
    lengths = []
    for side, lines, tokenizer in (
        (found.source, pairs.source, tokenizers.source),
        (found.target, pairs.target, tokenizers.target),
    ):
        encoded = tokenizer.encode_batch(list(lines))
        lengths.append(np.array([len(ids) for ids in encoded]))
        flat = [i for ids in encoded for i in ids]
        assert side.words == sum(len(line.split()) for line in lines)
        assert side.characters == sum(map(len, lines))
        assert side.pieces == len(flat)
        assert side.unknown == flat.count(tokenizer.unk_id)  # type: ignore[attr-defined]
        assert side.mean == pytest.approx(lengths[-1].mean())
        assert side.longest == lengths[-1].max()
        for q in (0.05, 0.5, 0.95, 0.995, 1.0):
            assert side.quantile(q) == np.quantile(lengths[-1], q, method="inverted_cdf")
        assert side.piece_counts.tolist() == [flat.count(i) for i in range(tokenizer.vocab_size)]
    assert found.target.unknown
    step = found.joint_step
    for (i, j), count in np.ndenumerate(found.joint_lengths):
        assert count == sum((lengths[0] // step == i) & (lengths[1] // step == j))
    assert found.ratio_counts.sum() == 300
    assert found.ratio_counts[16] == sum(abs(np.log2(lengths[1] / lengths[0])) < 1 / 16)
    assert found.ratio_counts[-1] == sum(lengths[1] / lengths[0] >= 2**1.9375)


def test_an_empty_line_has_no_word_and_no_ratio(tokenizers: Tokenizers) -> None:
    data = encode_pairs(Pairs("gaps", ["", " \t", "sit amet"], ["sit", "", "amet"]), tokenizers)
    found = describe_set("gaps", data, tokenizers)
    assert (found.source.words, found.target.words) == (2, 2)
    assert found.source.length_counts[0] == 2
    assert found.ratio_counts.sum() == 1


def test_a_tag_before_a_source_is_no_piece(pairs: Pairs, tokenizers: Tokenizers) -> None:
    tagged = Pairs(pairs.name, pairs.source, pairs.target, tag="<2de>")
    tag = frozenset({tokenizers.source.symbol_id("<2de>")})
    plain = describe_set("words", encode_pairs(pairs, tokenizers), tokenizers)
    found = describe_set("words", encode_pairs(tagged, tokenizers), tokenizers, tag_ids=tag)
    assert found.source.length_counts.tolist() == plain.source.length_counts.tolist()
    assert found.source.piece_counts.tolist() == plain.source.piece_counts.tolist()


def test_each_part_of_a_mixture_is_described_as_if_it_were_alone(pairs: Pairs, tokenizers: Tokenizers) -> None:
    data = in_parts(pairs, tokenizers, [110, 190])
    parts = describe_parts(data, ["few", "many"], None, tokenizers)
    assert [part.name for part in parts] == ["few", "many"]
    assert [part.share for part in parts] == [pytest.approx(110 / 300), pytest.approx(190 / 300)]
    for part, rows in zip(parts, (slice(0, 110), slice(110, 300)), strict=True):
        alone = encode_pairs(Pairs("alone", pairs.source[rows], pairs.target[rows]), tokenizers)
        expected = describe_set("alone", alone, tokenizers)
        assert part.pairs == expected.pairs
        for side, other in ((part.source, expected.source), (part.target, expected.target)):
            assert (side.words, side.characters, side.unknown) == (other.words, other.characters, other.unknown)
            assert side.length_counts.tolist() == other.length_counts.tolist()
            assert side.piece_counts.tolist() == other.piece_counts.tolist()
        assert part.joint_lengths.sum() == expected.pairs


def test_a_part_of_which_nothing_is_left_is_described_too(pairs: Pairs, tokenizers: Tokenizers) -> None:
    _, none = describe_parts(in_parts(pairs, tokenizers, [300, 0]), ["all", "none"], [1.0, 0.0], tokenizers)
    side = none.source
    assert (none.pairs, side.pieces, side.mean, side.quantile(0.5), side.longest) == (0, 0, 0, 0, 0)
    assert none.joint_lengths.sum() == none.ratio_counts.sum() == side.pieces_per_word == 0


@pytest.mark.parametrize("shares", [None, [0.7, 0.3]])
def test_padding_and_updates_are_those_of_the_tensors_that_training_gets(
    pairs: Pairs, tokenizers: Tokenizers, shares: list[float] | None
) -> None:
    data = in_parts(pairs, tokenizers, [110, 190])
    module: Any = TranslationData.__new__(TranslationData)
    module.train, module.shares, module.seed = data, shares, 5
    module.batching = type("Budgeted", (), {"budget": 400})
    plan = module.plan(0)
    found = describe_batches(data, 400, window=6, seed=5, shares=shares)
    tensors = [collate(data, rows, tokenizers, epoch=0, index=0) for rows in plan]
    for cells, tokens, padding, key, pad_id in (
        (found.source_cells, found.source_tokens, found.source_padding, "source", tokenizers.source.pad_id),
        (found.target_cells, found.target_tokens, found.target_padding, "target_out", tokenizers.target.pad_id),
    ):
        sides = [getattr(batch, key) for batch in tensors]
        assert cells == sum(side.numel() for side in sides)
        assert tokens == sum(int((side != pad_id).sum()) for side in sides)
        assert padding == pytest.approx(sum(int((side == pad_id).sum()) for side in sides) / cells)
    assert 0 < found.padding < max(found.source_padding, found.target_padding)
    loader = TrainingLoader(
        data,
        tokenizers,
        plan=module.plan,
        rank=0,
        world=1,
        virtual_ranks=6,
        accumulate=1,
        num_workers=0,
        pin_memory=False,
    )
    assert (found.number, found.updates) == (len(plan), len(loader))
    assert found.number % 6  # else rounding up would not show
    assert found.sentences_a_batch == pytest.approx(sum(map(len, plan)) / len(plan))


def test_a_vocabulary_counts_what_text_can_be_made_of(pairs: Pairs, tokenizers: Tokenizers) -> None:
    train = describe_set("words", encode_pairs(pairs, tokenizers), tokenizers)
    tag = {tokenizers.source.symbol_id("<2de>")}
    found = vocabularies_of(train, tokenizers, tag)
    assert len(found) == (1 if tokenizers.joint else 2)
    specials = {"<pad>", "<unk>", "<s>", "</s>"}
    for vocabulary in found:
        counted = vocabulary.named(vocabulary.ranked)
        assert not specials & {piece for piece, _ in counted}
        assert [count for _, count in counted] == sorted((count for _, count in counted), reverse=True)
        assert all(count > 0 for _, count in counted)
        assert vocabulary.size == vocabulary.tokenizer.vocab_size - 4 - (vocabulary.name != "target")
    pieces = sum(int(v.counts[v.ranked].sum()) for v in found)
    unknown = (train.source.unknown or 0) + (train.target.unknown or 0)
    assert pieces == train.source.pieces + train.target.pieces - unknown


def test_symbols_that_cannot_be_unknown_have_no_rate_of_it() -> None:
    found = describe_set("digits", encode_pairs(Pairs("digits", ["1 2"], ["2"]), numbers(4)), numbers(4))
    assert found.source.unknown_rate is None
    assert (found.source.pieces, found.target.pieces, found.source.pieces_per_word) == (2, 1, 1.0)


@pytest.mark.parametrize("longest", [1, 3, 19, 20, 21, 150, 999])
def test_a_histogram_has_every_line_once_in_about_twenty_rows(longest: int) -> None:
    rng = np.random.default_rng(longest)
    lines = [" ".join(["1"] * n) for n in [longest, *rng.integers(1, longest // 4 + 2, 300)]]  # one far longer
    found = describe_set("digits", encode_pairs(Pairs("digits", lines, lines[::-1]), numbers(2)), numbers(2))
    table = length_histogram(found)
    assert len(table.rows) <= 21
    for column in (1, 2):
        assert sum(int(row[column].replace(",", "")) for row in table.rows) == 301
    limits = [list(map(int, row[0].split("–"))) for row in table.rows]
    assert limits[0][0] == 0
    assert limits[-1][-1] >= longest
    assert all(last[-1] + 1 == first[0] for last, first in pairwise(limits))
    assert sum(int(row[1].replace(",", "")) for row in ratio_histogram(found).rows) == 301


def test_what_cannot_be_seen_is_written_out() -> None:
    assert visible("a b\t\x00\u200b\u202e\u00a0é") == "a b␉␀⟨U+200B⟩⟨U+202E⟩⟨U+00A0⟩é"


@pytest.fixture(scope="module")
def description(pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> Description:
    tokenizers = learnt_from(pairs, tmp_path_factory.mktemp("cache"), joint=False)
    data = in_parts(pairs, tokenizers, [110, 190])
    train = describe_set("train", data, tokenizers)
    return Description(
        name="odd <b>name</b>",
        source_lang="en",
        target_lang="ar",
        train=train,
        parts=describe_parts(data, ["few", "many"], [0.5, 0.5], tokenizers),
        evaluation=[describe_set("validation", data, tokenizers, rows=(0, 9))],
        vocabularies=vocabularies_of(train, tokenizers, set()),
        batches=[describe_batches(data, tokens, window=2, seed=1) for tokens in (200, 400)],
        max_tokens=400,
        report={
            "read": 308,
            "kept": 300,
            "left_out": {"empty": 0, "control characters": 8},
            "truncated": 2,
            "examples": {"control characters": [{"part": "few", "line": 1234, "source": ODD, "target": "x"}]},
            "leaks": {
                "training_pairs": 7,
                "sets": {"test": {"lines": 9, "source": 4, "source_exact": 3, "target": 2, "target_exact": 1}},
            },
        },
        facts={"Tokenizer": {"kind": "bpe <i>"}},
    )


@pytest.fixture(scope="module")
def html(description: Description) -> str:
    return as_html(description)


class Page(HTMLParser):
    """What a browser would make of a page: elements and the text of cells. Fails where tags do not match."""

    EMPTY = frozenset({"meta"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.cells[-1] += data


def test_text_of_a_corpus_cannot_become_part_of_the_page(html: str) -> None:
    page = Page(html)
    names = {name for name, _ in page.elements}
    assert not {"script", "link", "iframe", "b", "i"} & names
    assert visible(ODD) in page.cells
    assert "few 1,234" in page.cells
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u200b]", html)


def test_the_page_needs_nothing_from_outside(html: str) -> None:
    for name, attributes in Page(html).elements:
        for key in ("src", "href", "xlink:href", "srcset", "action"):
            assert (attributes.get(key) or "#").startswith(("#", "data:image/png")), name
    assert "@import" not in html
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", html))


def test_every_plot_has_words_and_its_numbers_beside_it(html: str) -> None:
    page = Page(html)
    plots = [attributes for name, attributes in page.elements if name == "svg"]
    assert len(plots) == 5
    assert all(plot["role"] == "img" and len((plot["aria-label"] or "").split()) > 5 for plot in plots)
    assert len(re.findall(r"</figure><div class=\"table\"", html)) == 5
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)


def test_terminal_and_page_show_the_same_numbers(description: Description, html: str) -> None:
    text, cells = as_text(description), Page(html).cells
    cells = [cell for cell in cells if cell.strip()]
    joint = cells[cells.index("target: median") : cells.index("padding source")]  # the one plot that text leaves out
    assert [cell for cell in cells if cell not in text and cell not in joint] == []
    assert len(cells) > 200


def test_the_page_is_the_same_for_the_same_numbers(description: Description, html: str) -> None:
    assert as_html(description) == html


def test_colours_follow_the_page_and_can_be_read_in_light_and_dark(html: str) -> None:
    light, dark = STYLE.split("@media (prefers-color-scheme: dark)")
    themes = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in (light, dark)]
    assert set(themes[0]) == set(themes[1]) >= set(re.findall(r"var\(--(\w+)\)", html))
    for theme in themes:
        for colour in ("ink", "soft", "source", "target"):
            assert contrast(theme[colour], theme["paper"]) > 4.5
        assert contrast(theme["soft"], theme["card"]) > 4.5
    svgs = "".join(re.findall(r"<svg.*?</svg>", html, re.DOTALL))
    assert "var(--source)" in svgs
    assert not re.findall(r"#0[01][0-9a-f]{4}", svgs)  # neither black nor a colour that stands in for the page's


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)
