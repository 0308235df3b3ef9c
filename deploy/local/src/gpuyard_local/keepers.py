"""The node agents' keepers: they hold the workloads and outlive the agents, so that a restart disturbs nobody's work.

Where the whole stack stops, the work must not go on without it: each keeper is asked to leave (SIGTERM), upon which it ends its workloads
with their grace. Who a keeper is, the kernel tells of the other end of its socket.
"""

import os
import signal
import socket
import struct
from pathlib import Path

from gpuyard_local import processes
from gpuyard_local.layout import Layout
from gpuyard_local.processes import ProcessId

SOCKET = Path("keeper") / "keeper.sock"
LEAVE_SECONDS = 15.0


def found(layout: Layout) -> list[ProcessId]:
    """The keepers that run for this stack's nodes."""
    folders = sorted((layout.root / "nodes").glob("*"))
    return [who for folder in folders if (who := peer_of(folder / SOCKET)) is not None]


def end(layout: Layout) -> int:
    """Have every keeper end its workloads and leave. Returns how many there were."""
    return len(processes.end(found(layout), grace_seconds=LEAVE_SECONDS, signal_number=signal.SIGTERM))


def peer_of(path: Path) -> ProcessId | None:
    """Who listens on a UNIX socket; None for nobody. Reached by way of its folder: a socket's address is short."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(2.0)
            link.connect(f"/proc/self/fd/{folder}/{path.name}")
            pid, _, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
            return processes.identify(pid)
    except OSError:
        return None
    finally:
        os.close(folder)
