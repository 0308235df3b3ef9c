"""Showing log files: their ends, and what is added, also when a log turns over."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

POLL_SECONDS = 0.2
TAIL_BYTES = 512 * 1024


def tail(path: Path, lines: int) -> tuple[list[str], int]:
    """The last lines of a file, and the place behind them. Only the end of a large file is read."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - TAIL_BYTES)
        file.seek(start)
        content = file.read(size - start)
    whole = content.decode(errors="replace").splitlines()
    if start:
        whole = whole[1:]
    return (whole[-lines:] if lines else []), size


def added(path: Path, place: int, inode: int) -> tuple[list[str], int, int]:
    """Whole lines that were added behind `place`, the new place, and the file's inode: a file that turned over is read from its start."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return [], place, inode
    if found.st_ino != inode or found.st_size < place:
        place = 0
    with path.open("rb") as file:
        file.seek(place)
        content = file.read(TAIL_BYTES)
    end = content.rfind(b"\n") + 1
    return content[:end].decode(errors="replace").splitlines(), place + end, found.st_ino


def show(files: Mapping[str, Path], *, lines: int, follow: bool, out: IO[str] | None = None) -> None:
    """Print the ends of the files, each line behind its program's name where there are several; with `follow`, until interrupted."""
    target = out or sys.stdout
    prefix = {name: f"{name:<14} " if len(files) > 1 else "" for name in files}
    places: dict[str, tuple[int, int]] = {}
    for name, path in files.items():
        found, place = tail(path, lines)
        places[name] = place, path.stat().st_ino
        target.writelines(f"{prefix[name]}{line}\n" for line in found)
    target.flush()
    while follow:
        for name, path in files.items():
            found, *place = added(path, *places[name])
            places[name] = place[0], place[1]
            target.writelines(f"{prefix[name]}{line}\n" for line in found)
        target.flush()
        time.sleep(POLL_SECONDS)
