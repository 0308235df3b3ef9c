"""What an XID means: NVIDIA's catalogue, read for what is to be done.

Sources: NVIDIA's XID catalogue (2025-10), and which XIDs the device plugin leaves alone. An XID that nobody knows is counted and nothing is
done about it; 109 is disputed between vendors' tools and can be set otherwise (rules).
"""

from collections.abc import Mapping
from typing import Literal

from gpuyard_monitor.domain.model import Action

XidClass = Literal["application", "informational", "contained", "reset", "reboot", "link", "other", "unknown"]

ACTIONS: Mapping[XidClass, Action] = {
    "application": "none",
    "informational": "none",
    "contained": "cordon",  # the error took one program with it; what else runs may finish, nothing new comes
    "reset": "evict",
    "reboot": "evict",
    "link": "cordon",
    "other": "none",
    "unknown": "none",
}

_APPLICATION = (
    {8, 11, 13, 25, 31, 32, 43, 45, 60, 68} | {39, 40, 41} | {69, 70, 71} | set(range(75, 78)) | {80} | set(range(82, 87)) | {88, 89}
) | (set(range(96, 106)) | set(range(126, 136)) | {139})
_INFORMATIONAL = {14, 37, 38, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161}
_RESET = {46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}
_OTHER = {54, 78, 151, 154, 162, 163, 164, 165, 168} | set(range(144, 151))  # 144 to 150 depend on a sub-code that is not told here

_CLASSES: Mapping[int, XidClass] = {
    **dict.fromkeys(_APPLICATION, "application"),
    **dict.fromkeys(_INFORMATIONAL, "informational"),
    **dict.fromkeys(_RESET, "reset"),
    **dict.fromkeys(_OTHER, "other"),
    94: "contained",
    79: "reboot",
    74: "link",
}

_NAMES: Mapping[int, str] = {
    13: "graphics engine exception",
    31: "memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "row remapped",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained memory error",
    95: "uncontained memory error",
    109: "context switch timeout",
    119: "GSP timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
}


def class_of(xid: int) -> XidClass:
    """The class of an XID."""
    return _CLASSES.get(xid, "unknown")


def action_of(xid: int, overrides: Mapping[int, Action]) -> Action:
    """What is to be done about an XID."""
    return overrides.get(xid, ACTIONS[class_of(xid)])


def name_of(xid: int) -> str:
    """``XID 79 (GPU has fallen off the bus)``."""
    return f"XID {xid} ({_NAMES.get(xid, class_of(xid))})"
