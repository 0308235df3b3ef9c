"""Lines of output, each once: what a node sent again after it lost its connection is not shown again.

Pure. Lines of one attempt's rank and stream are numbered; what is below the next expected number has been shown.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line. `number` counts within the attempt's rank and stream.

    With `dropped_lines` it is not a line of the job's but the word that so many were not kept, the last of which had this number.
    """

    attempt: int
    rank: int
    stream: str
    number: int
    text: str
    at: datetime
    dropped_lines: int = 0


class LineCursor:
    """Remembers how far each attempt's rank and stream has been shown."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int, str], int] = {}

    def fresh(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """The lines that have not been shown yet, in the given order."""
        found: list[LogLine] = []
        for line in lines:
            place = (line.attempt, line.rank, line.stream)
            if line.number >= self._next.get(place, 0):
                self._next[place] = line.number + 1
                found.append(line)
        return found


def last(lines: Iterable[LogLine], count: int) -> list[LogLine]:
    """The last `count` lines."""
    return list(deque(lines, maxlen=count))
