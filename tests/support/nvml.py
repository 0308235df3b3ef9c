"""Cards for tests of the NVML binding: a C library of our own under NVIDIA's name, with its hardware in a text file."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "mocknvml" / "mocknvml.c"
GIB = 1 << 30

A100 = {
    "name": "NVIDIA A100-SXM4-80GB",
    "temp": 41,
    "power_mw": 61_000,
    "energy_mj": 123_456_789,
    "util_gpu": 97,
    "util_mem": 40,
    "mem_total": 80 * GIB,
    "mem_used": 2 * GIB,
    "mem_reserved": GIB,
    "clk_sm": 1410,
    "clk_mem": 1593,
    "reasons": "0x4",
    "ecc": 1,
    "mig": 0,
    "mode": 0,
    "cc": 80,
    "numa": 0,
    "nvlink": 1,
    "field82": 47,
}
"""One ordinary card."""


def build(folder: Path) -> Path:
    """The library, built into `folder`. Without a compiler the test is skipped, and fails where CI is set."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        if os.environ.get("CI"):
            pytest.fail("CI has no C compiler: the NVML binding would go untested")
        pytest.skip("no C compiler")
    library = folder / "libnvidia-ml.so.1"
    flags = ["-O1", "-std=gnu11", "-w", "-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run(
        [compiler, *flags, "-Wl,-soname,libnvidia-ml.so.1", "-o", str(library), str(SOURCE), "-lpthread"], check=True, timeout=60
    )
    return library


@dataclass
class MockHardware:
    """Cards in a file. :meth:`write` changes the hardware under a living driver."""

    folder: Path
    library: Path

    @property
    def environment(self) -> dict[str, str]:
        """By which a process finds this driver and its cards."""
        paths = {"MOCK_NVML_STATE": self.folder / "state.ini", "MOCK_NVML_EVENTS": self.folder / "events"}
        return {"LD_LIBRARY_PATH": str(self.library.parent)} | {name: str(path) for name, path in paths.items()}

    def write(self, *cards: dict[str, object], **system: object) -> None:
        """The machine has these cards now, each an A100 with its differences."""
        text = ["[system]", f"count={len(cards)}", "driver=570.124.06", *(f"{key}={value}" for key, value in system.items())]
        for index, differences in enumerate(cards):
            own = {"uuid": f"GPU-{index:08x}-0000-0000-0000-000000000000", "busid": f"00000000:{7 + 8 * index:02X}:00.0"}
            text += [f"[gpu{index}]", *(f"{key}={value}" for key, value in {**A100, **own, **differences}.items())]
        half = self.folder / "state.half"
        half.write_text("\n".join(text) + "\n")
        half.replace(self.folder / "state.ini")
        (self.folder / "events").touch()

    def happen(self, card: int, xid: int) -> None:
        """An XID of one card."""
        with (self.folder / "events").open("a") as file:
            file.write(f"{card} 0x8 {xid}\n")


def uuid_of(index: int) -> str:
    """The UUID of a mocked card."""
    return f"GPU-{index:08x}-0000-0000-0000-000000000000"
