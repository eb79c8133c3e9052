"""Lines on their way to SentencePiece's trainer: which it gets, and what is said of those it does not get."""

from collections.abc import Iterable, Iterator
from random import Random

from crosslight.errors import DataError

MAX_TOO_LONG = 0.1

SPACE = "\u2581"
"""The trainer's sign for a space. In raw text it is read as one: some normalizations would double spaces otherwise."""

RESERVED = "\u2585"
"""A block that the trainer uses itself: it leaves out every line that holds one, without a word."""


def drawn(lines: Iterable[str], count: int) -> list[str]:
    """At most `count` of the lines, each as likely as another (Vitter 1985, algorithm R), the same in every process.

    The library's own choice is salted anew in each.
    """
    draw, kept = Random(1), []
    for number, line in enumerate(lines):
        if number < count:
            kept.append(line)
        elif (place := int(draw.random() * (number + 1))) < count:
            kept[place] = line
    return kept


class LinesToLearn:
    """Lines on their way to the trainer, which says nothing of those it leaves out; we count them."""

    def __init__(self, max_bytes: int, lines: Iterable[str]) -> None:
        self.max_bytes, self.lines = max_bytes, lines
        self.read = self.too_long = self.with_nul = self.with_text = 0

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.read += 1
            self.with_nul += "\0" in line
            if len(line) * 4 > self.max_bytes and len(line.encode("utf-8", "surrogatepass")) > self.max_bytes:
                self.too_long += 1
            else:
                self.with_text += bool(line.strip(f" {SPACE}{RESERVED}"))
                yield line.replace(RESERVED, " ").replace(SPACE, " ")

    def all_too_long(self) -> DataError:
        return DataError(
            f"tokenizer: there is nothing to learn from; {self.too_long} of {self.read} lines are longer than "
            f"tokenizer.max_line_bytes={self.max_bytes} bytes; split the lines or raise it"
        )

    def report(self) -> list[str]:
        """What a user should know, or a DataError if the model has not seen enough of the text."""
        notes = []
        if self.with_nul:
            notes.append(f"tokenizer: {self.with_nul} lines hold a NUL character, which gets no piece")
        if not self.too_long:
            return notes
        left_out = (
            f"{self.too_long} of {self.read} lines are longer than {self.max_bytes} bytes and were not learnt from"
        )
        if self.too_long > self.read * MAX_TOO_LONG:
            raise DataError(f"tokenizer: {left_out}; split the lines or raise tokenizer.max_line_bytes")
        return [*notes, f"tokenizer: {left_out} (tokenizer.max_line_bytes)"]
