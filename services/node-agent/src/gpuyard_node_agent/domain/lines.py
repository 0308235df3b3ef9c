"""Output of programs, cut into lines and messages: whatever bytes a program writes.

Lines are numbered from 0 through one stream of one rank; what is dropped keeps its numbers, so that a reader sees the gap.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

MAX_LINE_CHARS = 4000
"""Longer lines are cut into several: it is what a message's text may have."""
MAX_LINE_BYTES = 16 * 1024
MAX_MESSAGE_BYTES = 48 * 1024
"""Well below 64 KiB, however the text grows when it is written as JSON."""
MAX_MESSAGE_LINES = 500


@dataclass(frozen=True, slots=True)
class Position:
    """How far one stream has been read: bytes taken from the file, lines numbered so far, and the bytes of a line that has no end yet."""

    offset: int = 0
    line: int = 0
    rest: bytes = b""


def cut(position: Position, data: bytes, *, is_end: bool = False) -> tuple[Position, list[str]]:
    """The lines that `data` completes, and the position after it. At the end an unfinished line is a line too."""
    whole = position.rest + data
    *raw, rest = whole.split(b"\n")
    if rest and (is_end or len(rest) >= MAX_LINE_BYTES):
        raw.append(rest)
        rest = b""
    lines = [piece for line in raw for piece in _pieces(line)]
    return Position(position.offset + len(data), position.line + len(lines), rest), lines


def _pieces(line: bytes) -> Iterator[str]:
    text = line.rstrip(b"\r").decode("utf-8", "replace")
    if len(text) <= MAX_LINE_CHARS:
        yield text
        return
    for start in range(0, len(text), MAX_LINE_CHARS):
        yield text[start : start + MAX_LINE_CHARS]


def skip(position: Position, data: bytes) -> tuple[Position, int]:
    """Pass over `data`: the position after it and how many lines that drops. A line that it cuts through counts as dropped."""
    ends = data.count(b"\n")
    last = data.rfind(b"\n")
    rest_dropped = 1 if last < len(data) - 1 else 0
    dropped = ends + rest_dropped
    return replace(position, offset=position.offset + len(data), line=position.line + dropped, rest=b""), dropped


def messages(first_line: int, lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines in portions that fit into one message each, with the number of each portion's first line."""
    batch: list[str] = []
    size = 0
    start = first_line
    for number, line in enumerate(lines, first_line):
        weight = _weight(line)
        if batch and (size + weight > MAX_MESSAGE_BYTES or len(batch) >= MAX_MESSAGE_LINES):
            yield start, batch
            batch, size, start = [], 0, number
        batch.append(line)
        size += weight
    if batch:
        yield start, batch


def _weight(line: str) -> int:
    """Bytes of the line as JSON at most: control characters take six, quotes and backslashes two."""
    if line.isascii() and line.isprintable() and '"' not in line and "\\" not in line:
        return len(line) + 3
    return sum(6 if char < " " or char == "\x7f" else 2 if char in '"\\' else len(char.encode("utf-8", "replace")) for char in line) + 3


def last_lines(data: bytes, limit: int = 1500) -> str:
    """The end of an output for people: whole lines where there is room, at most `limit` characters."""
    text = data.decode("utf-8", "replace").strip()
    if len(text) <= limit:
        return text
    end = text[-limit:]
    return end.split("\n", 1)[1] if "\n" in end[:-1] else end
