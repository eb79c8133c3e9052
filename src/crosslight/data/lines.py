"""The one rule for lines: LF ends a line, CRLF is accepted, nothing else breaks one (U+2028, U+0085, … stay inside).

A final LF adds no line. Text is UTF-8; a leading byte order mark is dropped.
"""

from pathlib import Path

from crosslight.errors import DataError


def split_lines(text: str) -> list[str]:
    """The lines of a text."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def decode_lines(data: bytes, name: str) -> list[str]:
    """The lines of a file's bytes; a DataError names the first line that is not UTF-8."""
    try:
        return split_lines(data.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: byte {data[error.start]:#04x} is not UTF-8; convert the file") from error


def read_lines(path: str | Path) -> list[str]:
    """The lines of a file."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return decode_lines(data, str(path))


def one_line(text: str) -> str:
    """A text without line breaks: each becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")


def write_lines(path: Path, lines: list[str]) -> None:
    """One LF-ended line for each; a line break inside a line becomes a space, so the count always holds."""
    text = "".join(one_line(line) + "\n" for line in lines)
    path.write_bytes(text.encode("utf-8", "replace"))
