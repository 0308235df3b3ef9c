"""Amounts in words, as people ask for them. Pure."""

from collections.abc import Sequence

_MIB, _GB = 2**20, 10**9


def memory(mib: int) -> str:
    """MiB as they were probably written: ``80 GiB``, ``40 GB`` (38147 MiB is what '40GB' asks for), else ``46068 MiB``."""
    whole = mib * _MIB // _GB
    if mib >= 1024 and mib % 1024 == 0:
        return f"{mib // 1024} GiB"
    return f"{whole} GB" if whole and -(-whole * _GB // _MIB) == mib else f"{mib} MiB"


def gpus(milli: int) -> str:
    """Milli-GPU: ``1 GPU``, ``8 GPUs``, ``0.25 GPU``."""
    return _decimal(milli) + (" GPU" if milli <= 1000 else " GPUs")


def cpus(milli: int) -> str:
    """Milli-CPU: ``1 CPU``, ``1.5 CPUs``."""
    return _decimal(milli) + (" CPU" if milli <= 1000 else " CPUs")


def cards(number: int) -> str:
    """``1 card``, ``8 cards``."""
    return f"{number} card" if number == 1 else f"{number} cards"


def _decimal(milli: int) -> str:
    whole, part = divmod(milli, 1000)
    return str(whole) if not part else f"{whole}.{part:03d}".rstrip("0")


def number(milli: int) -> str:
    """Thousandths as a job file has them: ``4``, ``1.5``."""
    return _decimal(milli)


def duration(seconds: int) -> str:
    """Seconds as a job file has them: ``2h``, ``90m``, ``45s``."""
    if seconds % 3600 == 0:
        return f"{seconds // 3600}h"
    return f"{seconds // 60}m" if seconds % 60 == 0 else f"{seconds}s"


def some(names: Sequence[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
