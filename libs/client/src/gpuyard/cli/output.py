"""How results look: tables for people, JSON for programs. Fits 80 columns where nobody says how wide it may be."""

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from gpuyard.amounts import show_asked, show_duration

_GREEN, _YELLOW, _RED, _MAGENTA, _BOLD, _DIM = "32", "33", "31", "35", "1", "2"

STYLES: Mapping[str, str] = (
    dict.fromkeys(("running", "succeeded", "ready", "free"), _GREEN)
    | dict.fromkeys(("submitted", "queued", "placing", "starting", "stopping"), _YELLOW)
    | dict.fromkeys(("failed", "lost", "rejected", "expired"), _RED)
    | dict.fromkeys(("unknown", "cordoned", "draining", "suspended"), _MAGENTA)
    | {"cancelled": _DIM}
)
"""Colours of states, as codes of ANSI."""

WIDTH = 80


MIN_COLUMN = 6
GAP = 2


def width_of(stream: TextIO) -> int:
    """How many columns there are: the terminal's, else what COLUMNS says, else 80."""
    if stream.isatty():
        return max(40, shutil.get_terminal_size().columns)
    asked = os.environ.get("COLUMNS", "")
    return int(asked) if asked.isdigit() and 40 <= int(asked) <= 1000 else WIDTH


def is_utf8(stream: TextIO) -> bool:
    """Whether signs beyond ASCII can be printed."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def is_coloured(stream: TextIO) -> bool:
    """Colours only on a terminal that can, and never with NO_COLOR."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_json(content: Any) -> None:
    """One JSON document."""
    print(json.dumps(content, indent=2, default=str))


def print_json_line(content: Any) -> None:
    """One line of a stream of JSON (NDJSON)."""
    print(json.dumps(content, default=str, separators=(",", ":")), flush=True)


def print_items(items: Iterable[Any]) -> None:
    """The stable shape of every list: an object with `items`."""
    print_json({"items": list(items)})


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, whole: Sequence[str] = (), empty: str = "nothing to show") -> None:
    """A table without lines, as wide as the page at most. Columns in `whole` are never cut. States get their colour."""
    found = [tuple(_plain(cell) for cell in row) for row in rows]
    if not found:
        say(empty)
        return
    coloured = is_coloured(sys.stdout)
    widths = fit(headers, found, width_of(sys.stdout), {number for number, header in enumerate(headers) if header in whole})
    for number, row in enumerate((tuple(headers), *found)):
        cells: list[str] = []
        for cell, width in zip(row, widths, strict=True):
            code = (_BOLD if number == 0 else STYLES.get(cell.rstrip("?"), "")) if coloured else ""
            text = cut(cell, width)
            shown = f"\x1b[{code}m{text}\x1b[0m" if code else text
            cells.append(shown + " " * (width - cells_of(text)))
        say((" " * GAP).join(cells).rstrip())


def fit(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, whole: Collection[int]) -> list[int]:
    """The columns' widths: what they need, and where that is too much the widest give way first, down to a few signs each."""
    widths = [max(cells_of(header), *(cells_of(row[number]) for row in rows)) for number, header in enumerate(headers)]
    may = [number for number in range(len(widths)) if number not in whole]
    over = sum(widths) + GAP * (len(widths) - 1) - width
    while over > 0 and (widest := max(may, key=lambda number: widths[number], default=None)) is not None and widths[widest] > MIN_COLUMN:
        others = [widths[number] for number in may if number != widest]
        step = min(over, widths[widest] - max(MIN_COLUMN, min(max(others, default=0), widths[widest] - 1)))
        widths[widest] -= step
        over -= step
    return widths


def cells_of(text: str) -> int:
    """How many columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def cut(text: str, width: int) -> str:
    """The text, or its beginning and an ellipsis, in so many columns."""
    if cells_of(text) <= width:
        return text
    kept = ""
    for sign in text:
        if cells_of(kept + sign) > width - 1:
            break
        kept += sign
    return kept + "~"


def _plain(text: str) -> str:
    """One line that cannot steer the terminal, whatever somebody called a thing."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def say(text: str) -> None:
    """A line of text on standard output."""
    print(text, flush=True)


def note(text: str) -> None:
    """A remark on standard error: it is not what a program would read."""
    print(text, file=sys.stderr, flush=True)


def age(at: datetime | None, now: datetime | None = None) -> str:
    """How long ago."""
    return "-" if at is None else show_duration(((now or datetime.now(UTC)) - at).total_seconds())


def clock(at: datetime) -> str:
    """Time of day, local, to the millisecond."""
    return at.astimezone().strftime("%H:%M:%S.%f")[:-3]


def _short(mib: int) -> str:
    return show_asked(mib).replace(" ", "")


def ask_of(gpu: Mapping[str, Any], ranks: int = 1) -> str:
    """What was asked for, in the shorthand: ``A100:2``, ``T4:0.25``, ``4 x A100:1``."""
    models = "|".join(str(model) for model in gpu.get("models") or ())
    memory = gpu.get("memory_mib")
    kind = f"mig-{gpu['mig_profile']}" if gpu.get("mig_profile") else models or (f"{_short(memory)}.." if memory else "any")
    milli, share = int(gpu.get("milli") or 1000), gpu.get("share_memory_mib")
    count = int(gpu.get("count") or 1)
    part = f"{milli / 1000:g}" if milli < 1000 else _short(share) if share else ""
    amount = (f"{count}x{part}" if count > 1 else part) if part else str(count)
    return f"{ranks} x {kind}:{amount}" if ranks > 1 else f"{kind}:{amount}"
