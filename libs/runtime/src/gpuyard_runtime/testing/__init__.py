"""What tests of services stand on: one service on :class:`~gpuyard_runtime.testing.harness.Harness`, many in
:class:`~gpuyard_runtime.testing.world.World`. The dispatcher is the real one; bus, database and clock are in memory.
"""

from gpuyard_runtime.clock import ManualClock
from gpuyard_runtime.testing.harness import Harness
from gpuyard_runtime.testing.memory_bus import MemoryBus
from gpuyard_runtime.testing.memory_units import Crash, MemoryDatabase, MemoryUnits
from gpuyard_runtime.testing.world import Actor, Faults, World

__all__ = ["Actor", "Crash", "Faults", "Harness", "ManualClock", "MemoryBus", "MemoryDatabase", "MemoryUnits", "World"]
