"""Simulated machines, as data: what `GPUYARD_PROFILE` may name."""

from dataclasses import dataclass

from gpuyard_node_agent.domain.model import Card, Machine


@dataclass(frozen=True, slots=True)
class Profile:
    """A machine: equal cards, and how they behave idle and busy. `has_nvlink`: every card reaches every other."""

    model: str
    count: int
    memory_mib: int
    has_nvlink: bool
    compute_capability: str
    cpu_milli: int
    machine_memory_mib: int
    idle_c: int
    busy_c: int
    idle_mw: int
    busy_mw: int
    sm_clock_mhz: int
    memory_clock_mhz: int


PROFILES: dict[str, Profile] = {
    "8xA100-80GB": Profile(
        model="A100-80GB",
        count=8,
        memory_mib=81_920,
        has_nvlink=True,
        compute_capability="8.0",
        cpu_milli=128_000,
        machine_memory_mib=1_048_576,
        idle_c=32,
        busy_c=64,
        idle_mw=62_000,
        busy_mw=390_000,
        sm_clock_mhz=1410,
        memory_clock_mhz=1593,
    ),
    "4xT4": Profile(
        model="T4",
        count=4,
        memory_mib=15_360,
        has_nvlink=False,
        compute_capability="7.5",
        cpu_milli=48_000,
        machine_memory_mib=196_608,
        idle_c=36,
        busy_c=72,
        idle_mw=12_000,
        busy_mw=69_000,
        sm_clock_mhz=1590,
        memory_clock_mhz=5001,
    ),
}


def uuid_of(node_id: str, index: int) -> str:
    """The UUID of a simulated card: the same at every start."""
    return f"GPU-sim-{node_id}-{index}"


def machine_of(profile: Profile, node_id: str) -> Machine:
    """The machine that a profile describes, on this node."""
    uuids = [uuid_of(node_id, index) for index in range(profile.count)]
    cards = tuple(
        Card(
            uuid=uuid,
            model=profile.model,
            memory_mib=profile.memory_mib,
            index=index,
            pci=f"0000:{7 + 8 * index:02x}:00",
            numa=index * 2 // profile.count,
            links=tuple(other for other in uuids if other != uuid) if profile.has_nvlink else (),
            driver="simulated",
            compute_capability=profile.compute_capability,
        )
        for index, uuid in enumerate(uuids)
    )
    return Machine(cards, profile.cpu_milli, profile.machine_memory_mib)
