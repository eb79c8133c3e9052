"""SentencePiece inside the run: special ids (B01), size (B02), long lines (B04), normalization (B06), spaces (B08), the
unknown piece (B09), NUL (A09), symbols of our own, errors in our terms, the cache by content (C01)."""

import io
import logging
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from texts import Text, recipe

from crosslight.data.collate import pad
from crosslight.errors import ConfigError, DataError
from crosslight.nn.masks import padding_mask
from crosslight.tokenizers.base import Tokenizer, TokenizerRecipe
from crosslight.tokenizers.sentencepiece import SentencePieceRecipe, SentencePieceTokenizer

WORDS = [
    "a",
    "two",
    "young",
    "men,",
    "dog",
    "child",
    "plays",
    "in",
    "the",
    "street",
    "red",
    "ball;",
    "it's",
    "3.5",
    "km",
]
GERMAN = ["ein", "zwei", "junger", "Mann", "Hund", "spielt", "läuft", "Straße", "rotem", "Ball,", "großes", "Haus"]
GREEK = "αβγδε " * 600  # 6.6 kB


def text(words: list[str] = WORDS, count: int = 40, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(3, 8))) + "." for _ in range(count)]


def learnt(cache: Path, lines: list[str] | None = None, symbols: tuple[str, ...] = (), **changed: Any) -> Tokenizer:
    """The tokenizer of both sides."""
    return recipe(cache, **changed).fit(Text(text() if lines is None else lines), symbols).source


def there_and_back(tokenizer: Tokenizer, lines: list[str]) -> list[str]:
    return tokenizer.decode_batch(tokenizer.encode_batch(lines))


def trained_elsewhere(**flags) -> bytes:
    """A model file as a user of the library would make it, with the library's defaults."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text()), model_writer=model, vocab_size=40, minloglevel=2, **flags
    )
    return model.getvalue()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({}, r"my\.model: .* no pad id; train it with --pad_id=N"),
        ({"pad_id": 3, "bos_id": -1, "eos_id": -1}, r"no bos and no eos id; train it with --bos_id=N --eos_id=N"),
    ],
)
def test_a_model_without_pad_or_sentence_marks_is_refused_with_the_fix(flags: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        SentencePieceTokenizer(trained_elsewhere(**flags), "my.model")


def test_special_ids_come_from_the_file_and_an_unknown_is_no_padding() -> None:
    tokenizer = SentencePieceTokenizer(trained_elsewhere(pad_id=3))
    assert (tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, 2, 3)
    short, long = [tokenizer.unk_id, 7], [tokenizer.unk_id, 7, 8, 9, 10]
    mask = padding_mask(pad([short, long], tokenizer.pad_id), tokenizer.pad_id)
    assert mask[:, 0, 0].tolist() == [[True, True, False, False, False], [True] * 5]


def test_one_id_for_two_special_pieces_is_refused() -> None:
    """The library's trainer refuses it itself, so the file is edited."""
    model = sentencepiece_model_pb2.ModelProto.FromString(trained_elsewhere(pad_id=3))
    model.trainer_spec.eos_piece = model.trainer_spec.bos_piece
    with pytest.raises(DataError, match=r"special ids must differ, but are .*'bos': 1, 'eos': 1"):
        SentencePieceTokenizer(model.SerializeToString())


# the size of the vocabulary


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_vocabulary_too_large_is_refused_with_the_largest_possible(tmp_path: Path, model_type: str) -> None:
    with pytest.raises(ConfigError, match=r"^tokenizer\.vocab_size: 8000 is more than this corpus allows; ") as error:
        learnt(tmp_path, model_type=model_type, vocab_size=8000)
    assert "(tokenizer.hard_vocab_limit=false takes as many as there are)" in str(error.value)
    largest = int(str(error.value).split("the largest possible is ")[1].split()[0])
    assert learnt(tmp_path, model_type=model_type, vocab_size=largest).vocab_size == largest
    with pytest.raises(ConfigError):
        learnt(tmp_path, model_type=model_type, vocab_size=largest + 1)
    soft = learnt(tmp_path, model_type=model_type, vocab_size=8000, hard_vocab_limit=False)
    assert soft.vocab_size == largest
    assert len({soft.pad_id, soft.bos_id, soft.eos_id, soft.unk_id}) == 4
    mask = padding_mask(pad([[soft.unk_id, 7], [soft.unk_id, 7, 8, 9, 10]], soft.pad_id), soft.pad_id)
    assert mask[:, 0, 0].tolist() == [[True, True, False, False, False], [True] * 5]
    assert there_and_back(soft, text(seed=2)) == text(seed=2)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_soft_limit_changes_nothing_where_the_corpus_has_enough(tmp_path: Path, model_type: str) -> None:
    lines = text(seed=5)
    hard, soft = (
        learnt(tmp_path, model_type=model_type, vocab_size=42, hard_vocab_limit=hard) for hard in (True, False)
    )
    assert hard.vocab_size == 42
    assert soft.encode_batch(lines) == hard.encode_batch(lines)


def test_a_vocabulary_too_small_is_refused_with_the_least(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: 9 is too small .* the least is \d+") as error:
        learnt(tmp_path, vocab_size=9)
    least = int(str(error.value).rsplit(" ", 1)[1])
    assert learnt(tmp_path, vocab_size=least).vocab_size == least


# lines that are left out


@pytest.mark.parametrize("vocab_size", [16, 8000])
def test_a_corpus_of_long_lines_is_refused_with_their_number(tmp_path: Path, vocab_size: int) -> None:
    """Case B04. The long lines are the reason also where the rest is too little for the vocabulary."""
    with pytest.raises(DataError) as error:
        learnt(tmp_path, [*[GREEK] * 4, "a small dog", *[GREEK] * 5], vocab_size=vocab_size)
    assert str(error.value) == (
        "tokenizer: 9 of 10 lines are longer than 4192 bytes and were not learnt from; "
        "split the lines or raise tokenizer.max_line_bytes"
    )
    assert not list(tmp_path.iterdir()), "what was learnt from the rest is not kept"


def test_a_few_long_lines_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = learnt(tmp_path, [GREEK, *text(count=19)], vocab_size=40)
    assert caplog.messages == [
        "tokenizer: 1 of 20 lines are longer than 4192 bytes and were not learnt from (tokenizer.max_line_bytes)"
    ]
    assert tokenizer.unk_id in tokenizer.encode_batch(["αβγ"])[0]


def test_only_long_lines_are_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        learnt(tmp_path, [GREEK] * 10)
    said = (
        "nothing to learn from; 10 of 10 lines are longer than tokenizer.max_line_bytes=4192 bytes; split the lines or"
    )
    assert said in str(error.value)


def test_the_limit_counts_bytes_and_a_line_of_just_that_many_is_learnt_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = [line for line in text(count=90) if len(line) <= 39]
    tokenizer = learnt(tmp_path, ["ω" * 20, *short], max_line_bytes=40, vocab_size=45)
    assert not caplog.messages
    assert tokenizer.unk_id not in tokenizer.encode_batch(["ωω"])[0]
    shorter = learnt(tmp_path, ["ω" * 20, *short], max_line_bytes=39, vocab_size=40)
    assert "1 of" in caplog.text
    assert shorter.unk_id in shorter.encode_batch(["ωω"])[0]


def test_the_library_leaves_out_no_line_of_which_we_say_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It skips lines with U+2585, which it uses inside; and other odd characters must cost no line either."""
    for number, odd in enumerate(["\u2585", "\t", "\u2581", "\u2028", "\ufeff", "\ufffd", "\x85", "\x7f"]):
        lines = [f"{chr(0x3B1 + number)}a{odd}b{chr(0x3B1 + number)}", *text()]
        tokenizer = learnt(tmp_path, lines, vocab_size=45, hard_vocab_limit=False)
        assert tokenizer.unk_id not in tokenizer.encode_batch([chr(0x3B1 + number)])[0], repr(odd)
    assert not caplog.messages


@pytest.mark.parametrize("lines", [[], [""], ["", " ", "\u2585"]])
def test_a_corpus_without_text_is_refused_in_one_sentence(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(DataError) as error:
        learnt(tmp_path, lines)
    assert str(error.value) == f"tokenizer: there is nothing to learn from; none of {len(lines)} lines holds text"


def test_a_nul_is_counted_and_costs_nothing_that_follows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Case A09: code that treats text as a C string would stop there."""
    with caplog.at_level(logging.WARNING):
        tokenizer = learnt(tmp_path, ["ab\0ωd", "\0ωω", *text()], vocab_size=45)
    assert caplog.messages == ["tokenizer: 2 lines hold a NUL character, which gets no piece"]
    assert tokenizer.unk_id not in tokenizer.encode_batch(["ω"])[0], "it was learnt from behind the NUL"
    lines = ["ab\0cd dog", "\0dog", "dog\0", "a\0 \0b", "\0"]
    assert there_and_back(tokenizer, lines) == [line.replace("\0", "⁇") for line in lines]


# text in, text out


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_decoding_gives_back_the_text_that_was_encoded(tmp_path: Path, model_type: str, normalization: str) -> None:
    lines = text(WORDS + GERMAN, 60)
    tokenizer = learnt(tmp_path, lines, model_type=model_type, normalization=normalization, vocab_size=62)
    unseen = text(WORDS + GERMAN, 30, seed=2)
    ids = tokenizer.encode_batch([*unseen, ""])
    assert tokenizer.decode_batch(ids) == [*unseen, ""]
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}
    assert not special & {i for sequence in ids for i in sequence}
    framed = [[tokenizer.bos_id, *sequence, tokenizer.eos_id, tokenizer.pad_id] for sequence in ids]
    assert tokenizer.decode_batch(framed) == [*unseen, ""], "special ids leave no trace"
    assert "".join(tokenizer.pieces(ids[0])) == "▁" + unseen[0].replace(" ", "▁")


def test_nothing_in_gives_nothing_out(tmp_path: Path) -> None:
    tokenizer = learnt(tmp_path)
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.decode_batch([]) == []
    assert tokenizer.decode_batch([[], [tokenizer.eos_id]]) == ["", ""]


def test_identity_copies_what_compatibility_forms_would_change(tmp_path: Path) -> None:
    """Case B06. Unicode's NFKC splits, joins and replaces characters, at training as at translation."""
    odd = "½ ① ﬁ Ａ ŀ ︰"
    lines = [*text(), *[odd] * 5]
    kept = learnt(tmp_path, lines, normalization="identity", vocab_size=70)
    assert there_and_back(kept, [odd]) == [odd]
    changed = learnt(tmp_path, lines, normalization="nmt_nfkc", vocab_size=70)
    assert there_and_back(changed, [odd]) == ["1⁄2 1 fi A l· .."]
    assert changed.encode_batch([odd]) == changed.encode_batch(["1⁄2 1 fi A l· .."])
    assert changed.unk_id not in changed.encode_batch([odd])[0]
    stored = [sentencepiece_model_pb2.ModelProto.FromString(t.to_bytes()).normalizer_spec.name for t in (kept, changed)]
    assert stored == ["identity", "nmt_nfkc"], "the rule travels with the model"


@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_the_sign_for_a_space_in_raw_text_becomes_a_space(tmp_path: Path, model_type: str, normalization: str) -> None:
    """Case B08: U+2581 is lost, as documented, but never leaves a doubled, leading or closing space."""
    lines = [line.replace(" ", "▁") if number % 2 else line for number, line in enumerate(text(count=60))]
    tokenizer = learnt(tmp_path, lines, model_type=model_type, normalization=normalization, vocab_size=42)
    raw = ["a▁dog", "a dog", "a ▁ dog", "▁a▁dog", "a▁▁dog", "a dog▁", " ▁a dog ▁"]
    assert set(there_and_back(tokenizer, raw)) == {"a dog"}
    assert there_and_back(tokenizer, ["▁", "▁▁", " ▁ "]) == [""] * 3


@pytest.mark.parametrize("surface", ["⁇", "<unk>", "_"])
def test_an_unknown_piece_is_written_as_chosen_and_moves_no_space(tmp_path: Path, surface: str) -> None:
    """Case B09."""
    tokenizer = learnt(tmp_path, unk_surface=surface)
    dog, unknown = tokenizer.encode_batch(["dog"])[0], tokenizer.unk_id
    places = [[*dog, unknown, *dog], [unknown, *dog], [*dog, unknown], [*dog, unknown, unknown, *dog], [unknown]]
    expected = ["dog⁇ dog", "⁇ dog", "dog⁇", "dog⁇⁇ dog", "⁇"]
    assert tokenizer.decode_batch(places) == [line.replace("⁇", surface) for line in expected]
    lines = ["the Ω dog", "Ω dog", "dog Ω", "the Ω Ω dog", "dΩg", "Ж Ж, Жж"]
    assert all(unknown in ids for ids in tokenizer.encode_batch(lines))
    expected = ["the ⁇ dog", "⁇ dog", "dog ⁇", "the ⁇ ⁇ dog", "d⁇g", "⁇ ⁇, ⁇"]
    assert there_and_back(tokenizer, lines) == [line.replace("⁇", surface) for line in expected]


def test_byte_fallback_knows_every_character(tmp_path: Path) -> None:
    tokenizer = learnt(tmp_path, byte_fallback=True, vocab_size=320)
    lines = ["the Ω dog", "Ж Ж, Жж", "漢字 a"]
    assert there_and_back(tokenizer, lines) == lines
    assert not any(tokenizer.unk_id in ids for ids in tokenizer.encode_batch(lines))


# symbols of our own


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_no_text_is_encoded_to_a_control_symbol(tmp_path: Path, model_type: str) -> None:
    """Whoever writes `<2de>` into a source must not steer the translation."""
    lines = [*text(), *["<2de> dog"] * 9]
    tokenizer = learnt(tmp_path, lines, ("<2de>", "<2fr>"), model_type=model_type, vocab_size=44)
    ids = [tokenizer.symbol_id(symbol) for symbol in ("<2de>", "<2fr>")]
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *ids}
    assert len(special) == 5
    raw = ["<2de>", "<2de> dog", "dog<2de>", "<2fr><2de>", "<s> </s> <pad>"]
    assert not special & {i for sequence in tokenizer.encode_batch(raw) for i in sequence}
    assert tokenizer.pieces(ids) == ["<2de>", "<2fr>"]
    dog = tokenizer.encode_batch(["dog"])[0]
    assert tokenizer.decode_batch([[ids[0], *dog, tokenizer.eos_id]]) == ["dog"], "it leaves no trace"


@pytest.mark.parametrize("symbol", ["<2cs>", "dog", "▁", ""])
def test_what_is_no_control_symbol_is_refused_by_name(tmp_path: Path, symbol: str) -> None:
    tokenizer = learnt(tmp_path, symbols=("<2de>",))
    with pytest.raises(
        DataError, match=rf"^tokenizer: this model has no control symbol {symbol}; it was not trained for"
    ):
        tokenizer.symbol_id(symbol)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_user_symbol_is_one_piece_wherever_it_stands(tmp_path: Path, model_type: str) -> None:
    symbols = ["<url>", "★★", "dog"]
    tokenizer = learnt(tmp_path, model_type=model_type, vocab_size=44, user_symbols=symbols)
    lines = ["the <url> plays", "the<url>", "<url><url>", "men★★ ★★", "a dog plays dogs"]
    pieces = [tokenizer.pieces(ids) for ids in tokenizer.encode_batch(lines)]
    for line, found in zip(lines, pieces, strict=True):
        for symbol in symbols:
            assert found.count(symbol) == line.count(symbol)
    assert there_and_back(tokenizer, lines) == lines


# one or two models, learnt once


def test_joint_is_one_tokenizer_for_both_sides_and_separate_is_two(tmp_path: Path) -> None:
    source, target = text(), text(GERMAN)
    joint = recipe(tmp_path, vocab_size=80).fit(Text(source, target), [])
    assert joint.joint
    assert joint.source is joint.target
    both = joint.source.encode_batch([source[0], target[0]])
    assert joint.source.unk_id not in both[0] + both[1]
    separate = recipe(tmp_path, joint=False).fit(Text(source, target), [])
    assert not separate.joint
    assert separate.source.to_bytes() != separate.target.to_bytes()
    assert separate.source.unk_id in separate.source.encode_batch(["Straße"])[0]
    assert separate.target.unk_id not in separate.target.encode_batch(["Straße"])[0]
    assert isinstance(joint.source, Tokenizer)
    assert isinstance(recipe(tmp_path), TokenizerRecipe)


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_learning_gives_the_same_bytes_whatever_was_drawn_before(tmp_path: Path, model_type: str) -> None:
    """Also where it learns from some lines only, drawn at random."""
    lines = text(count=400)
    options: dict[str, Any] = {"model_type": model_type, "vocab_size": 42, "max_lines": 110}
    first = learnt(tmp_path / "a", lines, **options)
    sentencepiece.set_random_generator_seed(77)
    assert learnt(tmp_path / "b", lines, **options).to_bytes() == first.to_bytes()
    assert learnt(tmp_path / "c", lines, **{**options, "max_lines": 400}).encode_batch(lines) != first.encode_batch(
        lines
    )


def test_the_lines_drawn_to_learn_from_are_the_same_in_every_process(tmp_path: Path) -> None:
    """The library's own choice is not: it mixes a salt of the process into every seed."""
    lines, options = text(count=400), {"vocab_size": 42, "max_lines": 110}
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_sentencepiece import learnt
sys.stdout.buffer.write(learnt(Path({str(tmp_path / "other")!r}), {lines!r}, **{options!r}).to_bytes())
"""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.stdout == learnt(tmp_path / "here", lines, **options).to_bytes()


CHANGES: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({}, [*text()[:-1], text()[-1] + "!"], []),
    ({}, text()[::-1], []),
    ({}, text(), ["<2de>"]),
    ({}, text(), ["<2fr>"]),
    ({"vocab_size": 56}, text(), []),
    ({"hard_vocab_limit": False}, text(), []),
    ({"model_type": "unigram", "vocab_size": 42}, text(), []),
    ({"joint": False}, text(), []),
    ({"normalization": "identity"}, text(), []),
    ({"character_coverage": 0.98}, text(), []),
    ({"byte_fallback": True, "vocab_size": 320}, text(), []),
    ({"user_symbols": ["<url>"]}, text(), []),
    ({"unk_surface": "?"}, text(), []),
    ({"max_lines": 999}, text(), []),
    ({"max_line_bytes": 4000}, text(), []),
]


def test_the_same_text_and_options_are_learnt_once_and_all_else_anew(tmp_path: Path, monkeypatch) -> None:
    """Case C01: the key is the content, so a changed text or option can never find an old model."""
    first = recipe(tmp_path).fit(Text(text()), [])
    with monkeypatch.context() as patch:
        patch.setattr(SentencePieceRecipe, "_train", lambda self, lines, options: pytest.fail("trained again"))
        assert recipe(tmp_path).fit(Text(text()), []).content_hash == first.content_hash
        sampled = recipe(tmp_path, sampling_alpha=0.1, sampling_nbest=5).fit(Text(text()), [])
        assert sampled.content_hash == first.content_hash, "how training samples is not what was learnt"
    files = {path.name for path in tmp_path.glob("*.model")}
    assert len(files) == 1
    for changed, lines, symbols in CHANGES:
        recipe(tmp_path, **changed).fit(Text(lines, lines), symbols)
        found = {path.name for path in tmp_path.glob("*.model")}
        assert len(found - files) == (2 if "joint" in changed else 1), changed
        assert not list(tmp_path.glob("*.tmp*")), "no half-written file is left behind"
        files = found


def test_every_option_of_the_recipe_is_tried_above() -> None:
    options = {key for key in SentencePieceRecipe.__init__.__annotations__ if key not in ("return", "cache")}
    assert options - {key for changed, _, _ in CHANGES for key in changed} == {"sampling_alpha", "sampling_nbest"}


def test_an_unfinished_file_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.write_bytes

    def half(path: Path, data: bytes) -> int:
        if ".model" not in path.name:
            return whole(path, data)
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(KeyboardInterrupt):
            learnt(tmp_path)
    left = list(tmp_path.glob("*.model*"))
    assert len(left) == 1, "the process was killed while it wrote"
    assert left[0].stat().st_size > 0
    assert not left[0].name.endswith(".model")
    assert there_and_back(learnt(tmp_path), text()) == text()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DataError) as error:
        learnt(tmp_path / "file" / "tokenizers")
    assert str(error.value).startswith(f"cache: the tokenizer cannot be kept in {tmp_path / 'file' / 'tokenizers'} (")
    assert "choose another folder with cache=FOLDER" in str(error.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sampling_alpha": 0.0}, "tokenizer.sampling_alpha: 0.0 is no probability; BPE-dropout takes 0.1"),
        ({"sampling_alpha": 1.0}, "tokenizer.sampling_alpha: 1.0 is no probability"),
        ({"sampling_alpha": float("nan")}, "tokenizer.sampling_alpha: nan is no probability"),
        ({"sampling_alpha": -0.2, "model_type": "unigram"}, "tokenizer.sampling_alpha: -0.2 prefers bad segmentations"),
        ({"sampling_alpha": float("nan"), "model_type": "unigram"}, "tokenizer.sampling_alpha: nan prefers bad"),
        ({"sampling_nbest": 1}, "tokenizer.sampling_nbest: 1 leaves no choice; take -1 (all) or 2 and more"),
        ({"sampling_nbest": 0}, "tokenizer.sampling_nbest: 0 leaves no choice"),
        ({"sampling_nbest": -2}, "tokenizer.sampling_nbest: -2 leaves no choice"),
        ({"vocab_size": 0}, "tokenizer.vocab_size: 0 "),
        ({"max_lines": 0}, "tokenizer.max_lines: 0 "),
        ({"max_lines": -1}, "tokenizer.max_lines: -1 "),
        ({"character_coverage": 0.95}, "tokenizer.character_coverage: 0.95 "),
        ({"character_coverage": 1.01}, "tokenizer.character_coverage: 1.01 "),
        ({"user_symbols": ["<url>", "<s>"]}, "tokenizer.user_symbols: '<s>' "),
        ({"user_symbols": ["<url>", "<url>"]}, "tokenizer.user_symbols: '<url>' "),
        ({"user_symbols": [""]}, "tokenizer.user_symbols: '' "),
    ],
)
def test_options_that_cannot_be_are_refused_by_name_before_text_is_read(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        recipe(tmp_path, **changed)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_what_is_said_of_the_lines_is_said_again_to_the_next_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [*text(), "a\0b", "x" * 5000]
    said = []
    for _ in range(2):
        caplog.clear()
        recipe(tmp_path).fit(Text(lines), [])
        said.append([record.getMessage() for record in caplog.records])
    assert said[0] == said[1]
    assert [message.split(" lines")[0] for message in said[0]] == ["tokenizer: 1", f"tokenizer: 1 of {len(lines)}"]


def test_a_model_of_text_that_changes_meanwhile_is_not_kept(tmp_path: Path) -> None:
    class Changing(Text):
        def check_unchanged(self) -> None:
            raise DataError("changed while it was read")

    with pytest.raises(DataError, match="changed while it was read"):
        recipe(tmp_path).fit(Changing(text()), [])
    assert not list(tmp_path.iterdir())
