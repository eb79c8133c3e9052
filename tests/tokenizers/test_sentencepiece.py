"""SentencePiece inside the run: special ids from the file (B01), errors in our terms (B02), the cache by content."""

import io
import random
from pathlib import Path

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

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


def text(words: list[str] = WORDS, count: int = 40, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(3, 8))) + "." for _ in range(count)]


def recipe(cache: Path, **changed) -> SentencePieceRecipe:
    settings = {
        "vocab_size": 55,
        "model_type": "bpe",
        "joint": True,
        "character_coverage": 1.0,
        "normalization": "nmt_nfkc",
        "byte_fallback": False,
        "cache": str(cache),
    }
    return SentencePieceRecipe(**{**settings, **changed})


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


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_vocabulary_too_large_is_refused_with_the_largest_possible(tmp_path: Path, model_type: str) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: 8000 is more than") as error:
        recipe(tmp_path, model_type=model_type, vocab_size=8000).fit(text(), [])
    largest = int(str(error.value).rsplit(" ", 1)[1])
    assert recipe(tmp_path, model_type=model_type, vocab_size=largest).fit(text(), []).source.vocab_size == largest
    with pytest.raises(ConfigError):
        recipe(tmp_path, model_type=model_type, vocab_size=largest + 1).fit(text(), [])


def test_a_vocabulary_too_small_is_refused_with_the_least(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: 9 is too small .* the least is \d+") as error:
        recipe(tmp_path, vocab_size=9).fit(text(), [])
    least = int(str(error.value).rsplit(" ", 1)[1])
    assert recipe(tmp_path, vocab_size=least).fit(text(), []).source.vocab_size == least


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_decoding_gives_back_the_text_that_was_encoded(tmp_path: Path, model_type: str, normalization: str) -> None:
    lines = text(WORDS + GERMAN, 60)
    tokenizer = (
        recipe(tmp_path, model_type=model_type, normalization=normalization, vocab_size=62).fit(lines, []).target
    )
    unseen = text(WORDS + GERMAN, 30, seed=2)
    ids = tokenizer.encode_batch([*unseen, ""])
    assert tokenizer.decode_batch(ids) == [*unseen, ""]
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id}
    assert not special & {i for sequence in ids for i in sequence}
    framed = [[tokenizer.bos_id, *sequence, tokenizer.eos_id, tokenizer.pad_id] for sequence in ids]
    assert tokenizer.decode_batch(framed) == [*unseen, ""], "special ids leave no trace"
    assert "".join(tokenizer.pieces(ids[0])) == "▁" + unseen[0].replace(" ", "▁")


def test_nothing_in_gives_nothing_out(tmp_path: Path) -> None:
    tokenizer = recipe(tmp_path).fit(text(), []).source
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.decode_batch([]) == []
    assert tokenizer.decode_batch([[], [tokenizer.eos_id]]) == ["", ""]


def test_an_unknown_piece_does_not_change_the_spaces_round_it(tmp_path: Path) -> None:
    tokenizer = recipe(tmp_path).fit(text(), []).source
    lines = ["the Ω dog", "Ω dog", "dog Ω", "dog Ω Ω dog"]
    assert all(tokenizer.unk_id in ids for ids in tokenizer.encode_batch(lines))
    assert tokenizer.decode_batch(tokenizer.encode_batch(lines[:3])) == [line.replace("Ω", "⁇") for line in lines[:3]]
    assert "  " not in tokenizer.decode_batch(tokenizer.encode_batch(lines))[3]


def test_joint_is_one_tokenizer_for_both_sides_and_separate_is_two(tmp_path: Path) -> None:
    source, target = text(), text(GERMAN)
    joint = recipe(tmp_path, vocab_size=80).fit(source, target)
    assert joint.joint
    assert joint.source is joint.target
    both = joint.source.encode_batch([source[0], target[0]])
    assert joint.source.unk_id not in both[0] + both[1]
    separate = recipe(tmp_path, joint=False).fit(source, target)
    assert not separate.joint
    assert separate.source.to_bytes() != separate.target.to_bytes()
    assert separate.source.unk_id in separate.source.encode_batch(["Straße"])[0]
    assert separate.target.unk_id not in separate.target.encode_batch(["Straße"])[0]
    assert isinstance(joint.source, Tokenizer)
    assert isinstance(recipe(tmp_path), TokenizerRecipe)


def test_the_same_text_and_options_are_learnt_once_and_all_else_anew(tmp_path: Path, monkeypatch) -> None:
    """Case C01: the key is the content, so a changed text or option can never find an old model."""
    first = recipe(tmp_path).fit(text(), [])
    with monkeypatch.context() as patch:
        patch.setattr(SentencePieceRecipe, "_train", lambda self, lines: pytest.fail("trained again"))
        assert recipe(tmp_path).fit(iter(text()), iter([])).content_hash == first.content_hash
        assert recipe(tmp_path, joint=False).fit(text(), text()).source.to_bytes() == first.source.to_bytes()
    assert len(list(tmp_path.iterdir())) == 1
    for number, (changed, lines) in enumerate(
        [
            ({}, [*text()[:-1], text()[-1] + "!"]),
            ({}, text()[::-1]),
            ({"vocab_size": 56}, text()),
            ({"model_type": "unigram", "vocab_size": 42}, text()),
            ({"normalization": "identity"}, text()),
            ({"character_coverage": 0.98}, text()),
            ({"byte_fallback": True, "vocab_size": 320}, text()),
        ],
        start=2,
    ):
        recipe(tmp_path, **changed).fit(lines, [])
        files = list(tmp_path.iterdir())
        assert len(files) == number, changed
        assert all(path.suffix == ".model" for path in files), "no half-written file is left behind"


@pytest.mark.parametrize("lines", [[], ["", " "]])
def test_a_corpus_without_text_is_refused_without_a_traceback(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(ConfigError, match="tokenizer: SentencePiece could not be trained"):
        recipe(tmp_path).fit(lines, [])
