"""What a run folder keeps of its tokenizers, and that swapped or damaged files are refused (case B12)."""

import json
from pathlib import Path

import pytest
from texts import Text, numbers, recipe

from crosslight.errors import DataError, RunError
from crosslight.tokenizers.base import Tokenizers
from crosslight.tokenizers.load import load_tokenizers

SOURCE = [f"a small cat {i} sat on mat {i * 7}" for i in range(30)]
TARGET = [f"eine kleine Katze {i} saß auf Matte {i * 7}" for i in range(30)]


def subwords(cache: Path, joint: bool, vocab_size: int = 50) -> Tokenizers:
    small = recipe(cache, vocab_size=vocab_size, joint=joint)
    return small.fit(Text(SOURCE, TARGET), ["<2de>", "<2fr>"])


def made(kind: str, cache: Path) -> Tokenizers:
    return numbers(7) if kind == "integers" else subwords(cache, kind == "joint")


@pytest.mark.parametrize("kind", ["integers", "joint", "separate"])
def test_what_was_saved_comes_back_equal(tmp_path: Path, kind: str) -> None:
    tokenizers = made(kind, tmp_path / "cache")
    tokenizers.save(tmp_path / "run" / "tokenizer")
    loaded = load_tokenizers(tmp_path / "run" / "tokenizer")
    assert (loaded.kind, loaded.joint) == (tokenizers.kind, tokenizers.joint)
    assert loaded.content_hash == tokenizers.content_hash
    texts = (["0 6 3", "5"],) * 2 if kind == "integers" else (SOURCE, TARGET)
    sides = (loaded.source, tokenizers.source), (loaded.target, tokenizers.target)
    for lines, (again, first) in zip(texts, sides, strict=True):
        assert again.encode_batch(lines) == first.encode_batch(lines)
        assert again.decode_batch(again.encode_batch(lines)) == lines
        assert (again.vocab_size, again.pad_id, again.bos_id, again.eos_id) == (
            first.vocab_size,
            first.pad_id,
            first.bos_id,
            first.eos_id,
        )


@pytest.mark.parametrize("joint", [True, False])
def test_the_control_symbols_come_back_with_their_ids(tmp_path: Path, joint: bool) -> None:
    tokenizers = subwords(tmp_path / "cache", joint)
    tokenizers.save(tmp_path / "tokenizer")
    loaded = load_tokenizers(tmp_path / "tokenizer")
    ids = [tokenizers.source.symbol_id(symbol) for symbol in ("<2de>", "<2fr>")]
    assert [loaded.source.symbol_id(symbol) for symbol in ("<2de>", "<2fr>")] == ids
    assert len(set(ids)) == 2
    with pytest.raises(DataError, match=r"no control symbol <2cs>; it was not trained for that language"):
        loaded.source.symbol_id("<2cs>")


def test_the_hash_tells_the_sides_apart(tmp_path: Path) -> None:
    separate = subwords(tmp_path, joint=False)
    swapped = Tokenizers(separate.target, separate.source, separate.kind)
    doubled = Tokenizers(separate.source, separate.source, separate.kind)
    assert len({separate.content_hash, swapped.content_hash, doubled.content_hash}) == 3


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_tokenizer_swapped_for_a_working_one_is_refused(tmp_path: Path, side: str) -> None:
    """Same size, other pieces: nothing but the hash can tell."""
    tokenizers = subwords(tmp_path / "cache", joint=False)
    tokenizers.save(tmp_path / "tokenizer")
    other = tokenizers.target if side == "source" else tokenizers.source
    (tmp_path / "tokenizer" / f"{side}.model").write_bytes(other.to_bytes())
    with pytest.raises(RunError, match=r"do not match the hash in tokenizer\.json"):
        load_tokenizers(tmp_path / "tokenizer")


def damage_json(folder: Path, **changed) -> None:
    file = folder / "tokenizer.json"
    values = {**json.loads(file.read_text()), **changed}
    file.write_text(json.dumps({key: value for key, value in values.items() if value is not None}))


@pytest.mark.parametrize("kind", ["integers", "joint"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "source.model").unlink(),
        lambda folder: (folder / "source.model").write_bytes(b"garbage"),
        lambda folder: (folder / "source.model").write_bytes((folder / "source.model").read_bytes()[:-1] + b"\xff"),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / "tokenizer.json").write_text("{"),
        lambda folder: (folder / "tokenizer.json").write_text("[]"),
        lambda folder: damage_json(folder, kind="os.system"),
        lambda folder: damage_json(folder, sha256=None),
        lambda folder: damage_json(folder, joint=None),
    ],
    ids=["no model", "no model inside", "last byte", "no json", "half a json", "a list", "kind", "no hash", "no joint"],
)
def test_missing_and_damaged_files_are_refused_by_folder(tmp_path: Path, kind: str, damage) -> None:
    folder = tmp_path / "tokenizer"
    made(kind, tmp_path / "cache").save(folder)
    damage(folder)
    with pytest.raises(RunError, match=str(folder)):
        load_tokenizers(folder)
