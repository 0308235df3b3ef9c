"""Limits of memory and CPU by cgroup v2, where the node was given a tree of its own (`GPUYARD_CGROUP_ROOT`, delegated to the agent)."""

import contextlib
from pathlib import Path

from gpuyard_runtime.logs import log_of

from gpuyard_node_agent.domain.model import Order

PERIOD_US = 100_000
MIB = 2**20


class Cgroups:
    """One cgroup for each workload below the root; the keeper itself sits in a leaf of its own, as the kernel's rules want."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._log = log_of("cgroups")
        self.home = str(root / "keeper")

    def open(self) -> None:
        """Take the tree. Raises OSError where it is not the agent's to use."""
        (self._root / "cgroup.subtree_control").write_text("+cpu +memory +pids")
        (self._root / "keeper").mkdir(exist_ok=True)

    def make(self, order: Order) -> str:
        """A cgroup with the order's limits; its path. Memory above the limit kills the whole workload and nobody else. Raises OSError."""
        group = self._root / order.key
        group.mkdir(exist_ok=True)
        (group / "memory.max").write_text(str(order.memory_mib * MIB))
        (group / "memory.oom.group").write_text("1")
        (group / "cpu.max").write_text(f"{max(order.cpu_milli * PERIOD_US // 1000, 1000)} {PERIOD_US}")
        return str(group)

    def drop(self, key: str) -> None:
        """Remove a workload's cgroup: everybody in it is gone. What is still there is killed by the kernel first."""
        group = self._root / key
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            self._log.warning("cgroup_stays", key=key, detail=error.strerror)
