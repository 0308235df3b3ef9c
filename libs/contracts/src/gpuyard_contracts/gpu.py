"""How people ask for GPUs: the shorthand of job files.

``gpu: H100:2`` · ``gpu: 24GB..`` · ``gpu: 24GB..48GB:2`` · ``gpu: A100-80GB:0.25`` · ``gpu: 2`` · ``gpu: T4|A100:1`` ·
``gpu: mig-3g.40gb`` · ``gpu: T4:4GB`` (a share by memory) · ``gpu: T4:2x0.25`` (two shares, each on a card of its own). GB is 10⁹
bytes, as cards are sold; GiB and MiB are binary. Memory is rounded up to whole MiB, so that what was asked for is what is there.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Any

from gpuyard_contracts.types import SHARE_FULL_MILLI

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|GiB|MB|MiB)", re.IGNORECASE)
_RANGE = re.compile(r"(?P<low>\d[\d.]*\s*[GM]i?B)\s*\.\.\s*(?P<high>\d[\d.]*\s*[GM]i?B)?", re.IGNORECASE)
_MODEL = re.compile(r"[A-Za-z][A-Za-z0-9 ._-]*")
_SEVERAL = re.compile(r"(?P<count>[1-9]\d{0,3})\s*x\s*(?P<share>\d+(\.\d+)?\s*([GM]i?B)?)", re.IGNORECASE)
_MIG = re.compile(r"mig-\d+g\.\d+gb(\+me)?", re.IGNORECASE)
_BYTES = {"gb": 10**9, "gib": 2**30, "mb": 10**6, "mib": 2**20}

EXAMPLES = "'H100:2', '24GB..', 'A100-80GB:0.25' or 'T4:4GB'"


def memory_mib(text: str) -> int:
    """``24GB`` → 22889, ``16GiB`` → 16384: whole MiB, rounded up. Raises ValueError for anything else."""
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory; write it like '24GB' or '16GiB'")
    size = Decimal(found[1]) * _BYTES[found[2].lower()]
    return int((size / 2**20).to_integral_value(ROUND_CEILING))


def memory_text(mib: int) -> str:
    """MiB as :func:`memory_mib` reads them back: ``80GiB``, ``40GB``, else ``46068MiB``."""
    gigabytes = mib * 2**20 // 10**9
    if mib >= 1024 and mib % 1024 == 0:
        return f"{mib // 1024}GiB"
    return f"{gigabytes}GB" if gigabytes and memory_mib(f"{gigabytes}GB") == mib else f"{mib}MiB"


def write(asked: Mapping[str, Any]) -> str:
    """The shorthand of the fields of a ``GpuAsk``: what :func:`parse` reads; where there is none, the same as a mapping in YAML."""
    count, milli, share = asked.get("count", 1), asked.get("milli", SHARE_FULL_MILLI), asked.get("share_memory_mib")
    models, low, high, mig = asked.get("models"), asked.get("memory_mib"), asked.get("memory_max_mib"), asked.get("mig_profile")
    kinds = [kind for kind in ("|".join(models or ()), _range_text(low, high), f"mig-{mig}" if mig else "") if kind]
    is_both = share is not None and milli < SHARE_FULL_MILLI
    if len(kinds) > 1 or is_both or (high is not None and low is None):
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items() if value not in (None, ())}
        return "{" + ", ".join(f"{name}: {value}".replace("'", "") for name, value in fields.items()) + "}"
    part = _share_text(milli, share)
    amount = (f"{count}x{part}" if count > 1 else part) if part else str(count)
    return f"{kinds[0]}:{amount}" if kinds else amount if share is None else f"*:{amount}"


def _range_text(low: int | None, high: int | None) -> str:
    if low is None:
        return "" if high is None else f"..{memory_text(high)}"
    return f"{memory_text(low)}..{'' if high is None else memory_text(high)}"


def _share_text(milli: int, share_mib: int | None) -> str:
    if share_mib is not None:
        return memory_text(share_mib)
    return "" if milli == SHARE_FULL_MILLI else f"0.{milli:03d}".rstrip("0")


def parse(text: str) -> dict[str, Any]:
    """The fields of a ``GpuAsk`` that a shorthand stands for. Raises ValueError that says what could not be read and shows examples."""
    head, colon, amount = text.strip().rpartition(":")
    if not colon:
        head, amount = ("", amount) if _is_number(amount) else (amount, "1")
    if not text.strip(" :"):
        raise ValueError(f"{text!r} asks for nothing; write for example {EXAMPLES}")
    return _kind(head, text) | _amount(amount, text)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"([1-9]\d{0,3}\s*x\s*)?\d+(\.\d+)?", text.strip(), re.IGNORECASE) is not None


def _kind(head: str, text: str) -> dict[str, Any]:
    head = head.strip()
    if not head or head == "*":
        return {}
    if _MIG.fullmatch(head):
        return {"mig_profile": head.lower().removeprefix("mig-")}
    if found := _RANGE.fullmatch(head):
        low = memory_mib(found["low"])
        if not found["high"]:
            return {"memory_mib": low}
        high = memory_mib(found["high"])
        if high < low:
            raise ValueError(f"{text!r}: the range ends below its start")
        return {"memory_mib": low, "memory_max_mib": high}
    if _MEMORY.fullmatch(head):
        return {"memory_mib": memory_mib(head)}
    models = [part.strip() for part in head.split("|")]
    if not all(_MODEL.fullmatch(model) for model in models):
        raise ValueError(f"{text!r} is not a way to ask for GPUs; write for example {EXAMPLES}")
    return {"models": models}


def _amount(amount: str, text: str) -> dict[str, Any]:
    amount = amount.strip()
    if found := _SEVERAL.fullmatch(amount):
        asked = _amount(found["share"], text)
        if asked.keys() == {"count"}:
            raise ValueError(f"{text!r}: only shares are counted so; several whole GPUs are written as a number")
        return {**asked, "count": int(found["count"])}
    if _MEMORY.fullmatch(amount):
        return {"count": 1, "share_memory_mib": memory_mib(amount)}
    try:
        number = Decimal(amount)
    except InvalidOperation:
        raise ValueError(f"{text!r}: {amount!r} is neither a number of GPUs, a share such as 0.25, nor memory such as 4GB") from None
    if not number.is_finite() or number <= 0 or len(amount) > 12:
        raise ValueError(f"{text!r}: the number of GPUs must be above 0")
    if number == number.to_integral_value():
        return {"count": int(number)}
    if number > 1:
        raise ValueError(f"{text!r}: a share is below 1; several shares, each on a card of its own, are written as '2x0.25'")
    milli = number * SHARE_FULL_MILLI
    if milli != milli.to_integral_value():
        raise ValueError(f"{text!r}: shares are counted in thousandths of a GPU; write at most three decimals")
    return {"count": 1, "milli": int(milli)}
