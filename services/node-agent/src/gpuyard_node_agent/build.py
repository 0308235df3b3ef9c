"""Building the agent's parts out of the settings, for :mod:`gpuyard_node_agent.app` and for tests that run a whole agent."""

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpuyard_runtime.faults import EXIT_CONFIG, Fatal

from gpuyard_node_agent.backends.nvml import NvmlBackend
from gpuyard_node_agent.backends.profiles import PROFILES
from gpuyard_node_agent.backends.simulated import SimulatedBackend
from gpuyard_node_agent.journal import Journal
from gpuyard_node_agent.node import Node
from gpuyard_node_agent.observer import Observer
from gpuyard_node_agent.outlet import Outlet
from gpuyard_node_agent.outputs import Outputs
from gpuyard_node_agent.ports import Backend, Bus, Clock, Runtime
from gpuyard_node_agent.processes import ownership
from gpuyard_node_agent.processes.cgroups import Cgroups
from gpuyard_node_agent.processes.keeping import KeptProcesses
from gpuyard_node_agent.processes.procfs import boot_id, now_ms
from gpuyard_node_agent.processes.workspace import Workspace
from gpuyard_node_agent.settings import AgentSettings
from gpuyard_node_agent.store import NodeStore

MIB = 2**20
POLL_SECONDS = 0.2
"""How often output files are looked at."""


class MachineClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """The present instant by the machine's clock."""
        return datetime.now(UTC)

    def ms(self) -> int:
        """Milliseconds on the boot clock."""
        return now_ms()


@dataclass(frozen=True, slots=True)
class Parts:
    """A whole agent, not yet started."""

    journal: Journal
    store: NodeStore
    node: Node
    outlet: Outlet
    outputs: Outputs
    workspace: Workspace
    backend: Backend
    observer: Observer
    runtime: Runtime


def machine_room() -> tuple[int, int]:
    """CPU in milli and memory in MiB of this machine."""
    memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB
    return (os.cpu_count() or 1) * 1000, memory_mib


def backend_of(settings: AgentSettings, clock: Clock) -> tuple[Backend, tuple[int, int]]:
    """Who looks at the cards, and the room of the machine that they are in."""
    if settings.backend == "simulated":
        simulated = SimulatedBackend(PROFILES[settings.profile], settings.node_id, clock)
        return simulated, (simulated.machine.cpu_milli, simulated.machine.memory_mib)
    return NvmlBackend(), machine_room()


def _cgroups(root: Path | None) -> Cgroups | None:
    if root is None:
        return None
    found = Cgroups(root)
    try:
        found.open()
    except OSError as error:
        raise Fatal(EXIT_CONFIG, f"{root} is no cgroup v2 tree that was given to the agent: {error.strerror}") from None
    return found


def _let_workloads_in(settings: AgentSettings) -> None:
    """Users of their own may pass through the state folder and no further than to what is theirs. Raises Fatal or OSError."""
    if os.geteuid() != 0:
        raise Fatal(EXIT_CONFIG, "GPUYARD_WORKLOAD_UIDS is for an agent that runs as root")
    for folder, mode in ((settings.state_dir, 0o711), (settings.state_dir / "work", 0o711), (settings.state_dir / "output", 0o700)):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
    settings.checkpoints.mkdir(parents=True, exist_ok=True, mode=0o711)
    for folder in (settings.state_dir / "work", settings.checkpoints):
        closed = ownership.closed_to_others(str(folder))
        if closed is not None:
            raise Fatal(EXIT_CONFIG, f"GPUYARD_WORKLOAD_UIDS: other users cannot pass {closed} on the way to {folder}")


@dataclass(frozen=True, slots=True)
class _Ground:
    """What lies on the disk and in the keeper's hands."""

    workspace: Workspace
    store: NodeStore
    runtime: Runtime


def _ground(settings: AgentSettings, boot: str) -> _Ground:
    """Open the state folder and read the journal. Raises Fatal where it cannot be used."""
    state = settings.state_dir
    try:
        if settings.workload_uids is not None:
            _let_workloads_in(settings)
        workspace = Workspace(
            state=state,
            checkpoints=settings.checkpoints,
            node_id=settings.node_id,
            cap_bytes=settings.output_cap_mib * MIB,
            keep_seconds=settings.keep_ended_seconds,
            cgroups=_cgroups(settings.cgroup_root),
        )
        journal = Journal(state / "journal", later=asyncio.get_running_loop().call_soon)
        store = NodeStore(journal, boot)
        store.load()
        return _Ground(workspace, store, KeptProcesses(state / "keeper", boot, before=journal.write))
    except OSError as error:
        raise Fatal(EXIT_CONFIG, f"the state folder {state} cannot be used: {error.strerror}") from None


def build(settings: AgentSettings, bus: Bus, clock: Clock) -> Parts:
    """The agent's parts. Reads the journal. Raises Fatal where its folder cannot be used."""
    boot = boot_id()
    ground = _ground(settings, boot)
    outlet = Outlet(bus.publish, lambda event: node.on_said(event), before=ground.store.journal.write)
    outputs = Outputs(
        ground.store,
        clock,
        bus.publish,
        ground.workspace.file_of,
        written=ground.workspace.writings.take,
        node_id=settings.node_id,
        cap_bytes=settings.output_cap_mib * MIB,
        bytes_per_poll=max(int(settings.log_bytes_per_second * POLL_SECONDS), 1024),
    )
    node = Node(
        node_id=settings.node_id,
        boot_id=boot,
        store=ground.store,
        runtime=ground.runtime,
        outlet=outlet,
        workspace=ground.workspace,
        outputs=outputs,
        clock=clock,
        uids=settings.workload_uids,
        patience_ms=int(settings.start_patience_seconds * 1000),
    )
    backend, room = backend_of(settings, clock)
    inventory, deadline_seconds = settings.state_dir / "inventory.json", settings.observe_deadline_seconds
    observer = Observer(node, backend, bus.publish, inventory=inventory, deadline_seconds=deadline_seconds, room=room)
    return Parts(ground.store.journal, ground.store, node, outlet, outputs, ground.workspace, backend, observer, ground.runtime)
