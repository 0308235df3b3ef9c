"""XIDs in the kernel's log: what NVML does not always tell (NVIDIA/DCGM#235), and the address forms in which cards appear."""

import re
from dataclasses import dataclass

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (\d+)(.*)")
_FALLEN = re.compile(r"NVRM: .*?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}).*fallen off the bus", re.IGNORECASE)

FALLEN_OFF_THE_BUS = 79


@dataclass(frozen=True, slots=True)
class XidLine:
    """One XID of one card, by its PCI address (see :func:`pci_place`)."""

    place: str
    xid: int
    detail: str


def pci_place(address: str) -> str:
    """One form for all: ``00000000:07:00.0``, ``0000:07:00.0`` and ``0000:07:00`` are the same card, ``0000:07:00``."""
    parts = address.lower().split(".")[0].split(":")
    if len(parts) != 3:
        return address.lower()
    return f"{parts[0][-4:]:0>4}:{parts[1]}:{parts[2]}"


def read_record(record: str) -> tuple[int, str] | None:
    """A record of ``/dev/kmsg`` (``prio,sequence,µs,flags;text``) → its sequence and text; None where it is none."""
    head, found, text = record.partition(";")
    fields = head.split(",")
    if not found or len(fields) < 3 or not fields[1].isdigit():
        return None
    return int(fields[1]), text.split("\n", 1)[0]


def xid_of(text: str) -> XidLine | None:
    """The XID that a line of the log tells of. A card that fell off the bus without one counts as XID 79."""
    if found := _XID.search(text):
        return XidLine(pci_place(found[1]), int(found[2]), text.strip()[:500])
    if found := _FALLEN.search(text):
        return XidLine(pci_place(found[1]), FALLEN_OFF_THE_BUS, text.strip()[:500])
    return None
