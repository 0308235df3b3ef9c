# ruff: noqa: PTH105, PTH108, PTH123
# The keeper imports this and must be up in milliseconds: pathlib alone would double its start time.
"""What a keeper has on disk: the lease's end, and what is still to be told when it leaves an idle node. Of another boot: nothing."""

import json
import os
from typing import Any

LEASE = "lease"
LEFT = "left.json"


class Remembered:
    """The files in a keeper's folder, for the boot of this name."""

    def __init__(self, folder: str, boot: str) -> None:
        self._folder = folder
        self._boot = boot

    def lease_ms(self) -> int | None:
        """When the lease ends by the boot clock; None where none is known."""
        try:
            with open(f"{self._folder}/{LEASE}") as file:
                boot, until = file.read().split()
            return int(until) if boot == self._boot else None
        except (OSError, ValueError):
            return None

    def keep_lease(self, until_ms: int) -> None:
        """The lease ends then. Raises OSError."""
        fd = os.open(f"{self._folder}/{LEASE}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(fd, f"{self._boot} {until_ms:020d}\n".encode(), 0)
        os.close(fd)

    def take_left(self) -> tuple[str, list[dict[str, Any]]] | None:
        """An earlier keeper's name and what it left untold, once."""
        try:
            with open(f"{self._folder}/{LEFT}") as file:
                left = json.load(file)
        except (OSError, ValueError):
            return None
        os.unlink(f"{self._folder}/{LEFT}")
        return (left["instance"], left["held"]) if left["boot"] == self._boot else None

    def leave(self, instance: str, told: list[dict[str, Any]]) -> None:
        """Write down what was not told yet, safe on the disk. Raises OSError."""
        with open(f"{self._folder}/{LEFT}.new", "w") as file:
            json.dump({"boot": self._boot, "instance": instance, "held": told}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{self._folder}/{LEFT}.new", f"{self._folder}/{LEFT}")
