"""Amounts as people write them in job files: memory, processors, durations; and back again for tables.

Pure. Everything ends as an integer in the unit that the api wants; what is not a whole number of units is refused, never rounded down.
"""

import re
from decimal import ROUND_CEILING, Decimal, InvalidOperation

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(TB|TiB|GB|GiB|MB|MiB)", re.IGNORECASE)
_BYTES = {"tb": 10**12, "tib": 2**40, "gb": 10**9, "gib": 2**30, "mb": 10**6, "mib": 2**20}
_DURATION = re.compile(r"(?:(\d+)d)?\s*(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+)s)?", re.IGNORECASE)
_PLAIN = re.compile(r"\d{1,12}")


def memory_mib(text: str) -> int:
    """``16GB`` → 15259, ``16GiB`` → 16384: MiB, rounded up so that what was asked for is there. Raises ValueError for anything else."""
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory; write it with its unit, like '16GB' or '512MiB'")
    size = Decimal(found[1]) * _BYTES[found[2].lower()] / 2**20
    return int(size.to_integral_value(ROUND_CEILING))


def cpu_milli(text: str) -> int:
    """``1.5`` → 1500: thousandths of a processor. Raises ValueError for what is not above 0 or finer than a thousandth."""
    try:
        number = Decimal(text.strip()) * 1000
    except InvalidOperation:
        raise ValueError(f"{text!r} is no number of processors; write it like 4 or 1.5") from None
    if not number.is_finite() or number <= 0 or number > 10**7:
        raise ValueError(f"{text!r} processors cannot be given; write a number above 0")
    if number != number.to_integral_value():
        raise ValueError(f"{text!r} is finer than a thousandth of a processor; write at most three decimals")
    return int(number)


def seconds(text: str) -> int:
    """``2h`` → 7200, ``1h30m`` → 5400, ``45`` → 45 (plain numbers are seconds). Raises ValueError for anything else, and for 0."""
    given = text.strip()
    found = _DURATION.fullmatch(given)
    if _PLAIN.fullmatch(given):
        total = int(given)
    elif found and given and len(given) < 40:
        days, hours, minutes, rest = (int(part or 0) for part in found.groups())
        total = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    else:
        raise ValueError(f"{text!r} is no duration; write it like '45s', '90m', '2h' or '1h30m'")
    if total <= 0:
        raise ValueError(f"{text!r}: a duration must be above 0")
    return total


def whole(text: str, *, at_least: int = 0, at_most: int = 10**9) -> int:
    """A whole number within its bounds. Raises ValueError."""
    if not re.fullmatch(r"[+-]?\d{1,18}", text.strip()):
        raise ValueError(f"{text!r} is not a whole number")
    number = int(text)
    if not at_least <= number <= at_most:
        raise ValueError(f"{number} is out of range; give {at_least} to {at_most}")
    return number


def show_duration(total: float) -> str:
    """Seconds for people: ``47s``, ``12m05s``, ``3h20m``, ``2d4h``."""
    whole_seconds = max(0, int(total))
    minutes, rest = divmod(whole_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def show_ms(milliseconds: int) -> str:
    """Milliseconds for tables: ``0.024s``, ``3.0s``, ``12m05s``. What is below 10 s is not worth nothing."""
    seconds = milliseconds / 1000
    return show_duration(seconds) if milliseconds >= 10_000 else f"{seconds:.1f}s" if milliseconds >= 1000 else f"{seconds:.3f}s"


def show_memory(mib: int) -> str:
    """MiB for people: ``512 MiB``, ``80 GiB``."""
    return f"{mib} MiB" if mib < 1024 else f"{Decimal(mib) / 1024:.1f} GiB".replace(".0 ", " ")


def show_asked(mib: int) -> str:
    """MiB as they were probably written: ``80 GiB``, ``40 GB`` (38147 MiB is what '40GB' asks for), else ``46068 MiB``."""
    gigabytes = mib * 2**20 // 10**9
    if mib >= 1024 and mib % 1024 == 0:
        return f"{mib // 1024} GiB"
    return f"{gigabytes} GB" if gigabytes and memory_mib(f"{gigabytes}GB") == mib else f"{mib} MiB"


def show_money(micros: int, currency: str = "") -> str:
    """Micro-units as money, to six places where they count: ``1.25``, ``0.000417``. Exact, never rounded."""
    sign, size = ("-" if micros < 0 else ""), abs(micros)
    units, rest = divmod(size, 10**6)
    cents = f"{rest:06d}"
    shown = f"{sign}{units:,}.{cents if cents[2:] != '0000' else cents[:2]}"
    return f"{shown} {currency}" if currency else shown


def show_gpus(milli: int) -> str:
    """Milli-GPU for people: ``2``, ``0.25``."""
    return f"{Decimal(milli) / 1000:f}".rstrip("0").rstrip(".") if milli % 1000 else str(milli // 1000)
