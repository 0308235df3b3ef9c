"""Files that only their owner can read: written whole or not at all, and never readable for others in between."""

import os
from collections.abc import Callable
from pathlib import Path


def write(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace the file by this text, in one step."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), mode)
        out.write(text)
    fresh.replace(path)


def ensure(path: Path, make: Callable[[], str]) -> str:
    """The file's text; made and kept where it is missing or empty."""
    try:
        kept = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        kept = ""
    if kept.strip():
        return kept
    fresh = make()
    write(path, fresh + "\n")
    return fresh
