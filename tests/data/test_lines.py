"""The one rule for lines (case A01): LF ends a line, CRLF is accepted, nothing else breaks one."""

from pathlib import Path

import pytest

from crosslight.data.lines import read_lines, write_lines
from crosslight.errors import DataError


@pytest.mark.parametrize(
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
    ],
)
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
