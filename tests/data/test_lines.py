"""The one rule for lines (case A01): LF ends a line, CRLF is accepted, nothing else breaks one."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from crosslight.data import lines as module
from crosslight.data.lines import count_lines, decode_lines, line_arrays, read_lines, write_lines
from crosslight.errors import DataError

COUNTED = pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"\n\n\n", ["", "", ""]),
        (b"a\r\n\r\nb\n", ["a", "", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b" a \t\n", [" a \t"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"ab\0cd\n", ["ab\0cd"]),
        (b"a\r", ["a"]),
        (b"a\r\r\n\r", ["a\r", ""]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        ("zwölf\u2028Boxkämpfer\r\n\U0001f600\n\r\nEnde".encode(), ["zwölf\u2028Boxkämpfer", "\U0001f600", "", "Ende"]),
    ],
)


@COUNTED
def test_only_line_feeds_end_lines_and_a_final_one_adds_none(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    (tmp_path / "text").write_bytes(data)
    assert read_lines(tmp_path / "text") == lines


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u001c", "\u001e"])
def test_unicode_line_breaks_stay_inside_a_line(tmp_path: Path, sign: str) -> None:
    lines = [f"left{sign}right", sign, "plain"]
    write_lines(tmp_path / "text", lines)
    assert (tmp_path / "text").read_bytes() == f"left{sign}right\n{sign}\nplain\n".encode()
    assert read_lines(str(tmp_path / "text")) == lines


def test_what_is_written_has_as_many_lines_as_it_was_given(tmp_path: Path) -> None:
    lines = ["", "a\nb", "c\r\nd", "e\r", "\n", "", "lone surrogate \ud800", ""]
    write_lines(tmp_path / "text", lines)
    assert (tmp_path / "text").read_bytes().count(b"\n") == len(lines)
    assert read_lines(tmp_path / "text") == ["", "a b", "c  d", "e ", " ", "", "lone surrogate ?", ""]
    write_lines(tmp_path / "text", [])
    assert read_lines(tmp_path / "text") == []


def test_bad_utf8_is_refused_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.de"
    path.write_bytes("gut\nschön\n".encode() + "schön\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.de, line 3: byte 0xf6 is not UTF-8"):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.en: cannot be read \(No such file"):
        read_lines(tmp_path / "nowhere.en")


def streamed(path: Path) -> list[str]:
    return [line for lines in line_arrays(path) for line in lines.to_pylist()]


@pytest.mark.parametrize("block_bytes", [4, 5, 7, 1 << 20])
@COUNTED
def test_text_in_blocks_of_any_size_has_the_same_lines(
    tmp_path: Path, data: bytes, lines: list[str], block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block_bytes)
    (tmp_path / "text").write_bytes(data)
    assert streamed(tmp_path / "text") == lines
    assert count_lines(tmp_path / "text") == len(lines)
    for array in line_arrays(tmp_path / "text"):
        array.validate(full=True)
        assert len(array) > 0


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


COMPRESSED = pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstd)])


@COMPRESSED
def test_compressed_text_has_the_lines_of_the_plain_one_in_one_frame_or_two(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    path, data = tmp_path / f"text{suffix}", "süß\r\nsauer\nscharf".encode()
    for packed in (compress(data), compress(data[:2]) + compress(data[2:])):
        path.write_bytes(packed)
        assert read_lines(path) == streamed(path) == ["süß", "sauer", "scharf"]
        assert count_lines(path) == 3


@COMPRESSED
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_compressed_file_that_was_cut_short_is_refused(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes], kept: float
) -> None:
    packed = compress("".join(f"line {i * i}\n" for i in range(5000)).encode())
    (tmp_path / f"text{suffix}").write_bytes(packed[: int(len(packed) * kept)])
    for read in (read_lines, streamed, count_lines):
        with pytest.raises(
            DataError, match=rf"text\{suffix}: cannot be read \(Truncated compressed stream; is the file"
        ):
            read(tmp_path / f"text{suffix}")


@COMPRESSED
def test_plain_text_that_is_called_compressed_is_refused(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    (tmp_path / f"text{suffix}").write_bytes(b"a plain sentence\n")
    with pytest.raises(DataError, match=rf"text\{suffix}: cannot be read .*is it (gzip|zstd)\?"):
        streamed(tmp_path / f"text{suffix}")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_refused_with_the_way_out(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "wide.de"
    path.write_bytes("gut und recht\nschlecht\n".encode(encoding))
    for read in (read_lines, streamed):
        with pytest.raises(DataError, match=r"wide\.de: is UTF-16, not UTF-8; convert it, .*iconv -f UTF-16"):
            read(path)


def test_zero_bytes_alone_do_not_make_text_utf16() -> None:
    for text in ("ab\0cd\n" * 20 + "\0\0\0\0\n", "a\0\0\0\0\0\0\n" * 20):
        assert decode_lines(text.encode(), "text") == text.split("\n")[:-1]


def test_the_line_of_bad_utf8_is_counted_over_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 16)
    (tmp_path / "latin.de").write_bytes(b"gut\n" * 40 + b"sch\xf6n\n" + b"gut\n" * 40)
    with pytest.raises(DataError, match=r"latin\.de, line 41: byte 0xf6 is not UTF-8"):
        streamed(tmp_path / "latin.de")


def test_a_file_without_line_feeds_ends_in_a_message_and_not_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 16)
    monkeypatch.setattr(module, "LONGEST_LINE", 64)
    (tmp_path / "image").write_bytes(b"x" * 60 + b"\n" + b"y" * 65)
    with pytest.raises(DataError, match=r"image: a line is longer than 64 bytes; is this text"):
        streamed(tmp_path / "image")
