"""The one rule for lines: LF ends a line, CRLF is accepted, nothing else breaks one (U+2028, U+0085, … stay inside).

A final LF adds no line. Text is UTF-8; a leading byte order mark is dropped. Files may be compressed (.gz, .zst).
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from crosslight.errors import DataError

BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 30
"""In bytes; Arrow's text columns end at twice that."""

COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split_lines(text: str) -> list[str]:
    """The lines of a text."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def decode_lines(data: bytes, name: str) -> list[str]:
    """The lines of a file's bytes; a DataError names the first line that is not UTF-8."""
    _refuse_utf16(data, name)
    return split_lines(_decoded(data, name).removeprefix("\ufeff"))


def read_lines(path: str | Path) -> list[str]:
    """The lines of a file."""
    return decode_lines(b"".join(read_blocks(path)), str(path))


def one_line(text: str) -> str:
    """A text without line breaks: each becomes a space."""
    return text.replace("\r", " ").replace("\n", " ")


def write_lines(path: Path, lines: list[str]) -> None:
    """One LF-ended line for each; a line break inside a line becomes a space, so the count always holds."""
    text = "".join(one_line(line) + "\n" for line in lines)
    path.write_bytes(text.encode("utf-8", "replace"))


def read_blocks(path: str | Path) -> Iterator[bytes]:
    """The bytes of a file, about BLOCK_BYTES at a time; .gz and .zst are decompressed.

    Arrow's decompressors, because they refuse a file that was cut short: the `zstandard` package reads it as whole.
    """
    compression = COMPRESSION.get(Path(path).suffix.lower())
    try:
        with open(path, "rb") as file:
            stream = pa.CompressedInputStream(file, compression) if compression else file
            while block := stream.read(BLOCK_BYTES):
                yield block
    except OSError as error:
        reason = error.strerror or f"{error}; is the file complete, and is it {compression}?"
        raise DataError(f"{path}: cannot be read ({reason})") from error


def count_lines(path: str | Path) -> int:
    """How many lines a file has, by counting bytes: nothing is decoded."""
    count, last = 0, b"\n"
    for number, block in enumerate(read_blocks(path)):
        count += block.count(b"\n")
        last = block[-1:] if number or block != BYTE_ORDER_MARK else last
    return count + (last != b"\n")


def line_arrays(path: str | Path) -> Iterator[pa.StringArray]:
    """The lines of a file, about BLOCK_BYTES at a time; no array is empty. A DataError names the line that is bad."""
    first = 1
    for block in _whole_lines(path):
        _decoded(block, str(path), first)
        lines = _arrow_lines(block)
        if len(lines):
            yield lines
        first += len(lines)


def _whole_lines(path: str | Path) -> Iterator[bytes]:
    """The bytes of a file, cut only behind line feeds, so neither a character nor a CRLF is ever cut."""
    parts: list[bytes] = []
    for number, block in enumerate(read_blocks(path)):
        if number == 0:
            _refuse_utf16(block, str(path))
            block = block.removeprefix(BYTE_ORDER_MARK)
        cut = block.rfind(b"\n") + 1
        if cut:
            yield b"".join((*parts, block[:cut]))
            parts = []
        parts.append(block[cut:])
        if len(parts) * BLOCK_BYTES > LONGEST_LINE:
            raise DataError(f"{path}: a line is longer than {LONGEST_LINE:,} bytes; is this text, one sentence a line?")
    yield b"".join(parts)


def _arrow_lines(data: bytes) -> pa.StringArray:
    """The lines of valid UTF-8 as an array, made from its bytes without a Python object for each."""
    if data and not data.endswith(b"\n"):
        data += b"\n"
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends - np.arange(len(ends))  # where lines end once the line feeds before them are gone
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(data.replace(b"\n", b"")))


def _decoded(data: bytes, name: str, first_line: int = 1) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise DataError(f"{name}, line {line}: byte {data[error.start]:#04x} is not UTF-8; convert the file") from error


def _refuse_utf16(data: bytes, name: str) -> None:
    """A DataError if the bytes begin with UTF-16's mark or, as Latin letters do in it, hold a zero at every second."""
    start = data[:1024]
    zeros = start[0::2].count(0), start[1::2].count(0)
    unmarked = len(start) >= 16 and min(zeros) == 0 and 3 * max(zeros) > len(start)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or unmarked:
        raise DataError(f"{name}: is UTF-16, not UTF-8; convert it, for example with iconv -f UTF-16 -t UTF-8")
