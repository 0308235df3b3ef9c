"""The child that calls NVML: answers one question a line on its standard input, tells of XIDs as they come.

Every value is read by itself: what one card does not support or cannot tell is absent, and hides nothing else. A card that is lost
(or needs a reset, or whose handle answers "unknown error", which is how a card that fell off the bus often looks) is told as lost.
Strings may be no UTF-8: the binding raises UnicodeDecodeError then. Facts and sources: NVML's documentation and nvidia-ml-py.
"""

import mmap
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml
from pydantic_core import from_json, to_json

from gpuyard_node_agent.domain.kernel_log import pci_place
from gpuyard_node_agent.domain.names import model_of

T = TypeVar("T")

MIB = 2**20
EVENT_WAIT_MS = 1000
MEMORY_TEMPERATURE_FIELD = 82
NVLINK_CAPABILITY = 2
CODES_OF_LOSS = frozenset({15, 16, 999})  # GPU_IS_LOST, RESET_REQUIRED, UNKNOWN
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
UNTOLD = (pynvml.NVMLError, UnicodeDecodeError, ValueError)


def code_of(error: Exception) -> int:
    """NVML's return code; -1 for other errors."""
    return int(getattr(error, "value", -1))


class Lost(Exception):
    """The card does not answer any more."""


class Observer:
    """All cards of the machine, by handle. `note` names the call that is under way, where the parent sees it."""

    def __init__(self, note: Callable[[str], None], tell: Callable[[dict[str, Any]], None]) -> None:
        self._note = note
        self._tell = tell
        self._handles: dict[str, Any] = {}
        self._places: dict[str, str] = {}
        self._listener: threading.Thread | None = None
        self._is_open = False

    def call(self, name: str, *args: Any) -> Any:
        """One NVML call. Raises pynvml.NVMLError and what the binding raises."""
        self._note(name)
        try:
            return getattr(pynvml, name)(*args)
        finally:
            self._note("")

    def told(self, name: str, *args: Any) -> Any:
        """One call; None where the card does not tell. Raises Lost for a card that is gone."""
        try:
            return self.call(name, *args)
        except pynvml.NVMLError as error:
            if code_of(error) in CODES_OF_LOSS:
                raise Lost(f"{name}: {error}") from None
            return None
        except (UnicodeDecodeError, ValueError, AttributeError):
            return None

    def cards(self) -> dict[str, Any]:
        """Enumerate. A card that cannot be read is left out; what is known of it elsewhere makes it a lost one."""
        if not self._is_open:
            self.call("nvmlInit")
            self._is_open = True
        driver, cuda = self.told("nvmlSystemGetDriverVersion"), self.told("nvmlSystemGetCudaDriverVersion")
        found: dict[str, Any] = {}
        for index in range(self.call("nvmlDeviceGetCount")):
            try:
                handle = self.call("nvmlDeviceGetHandleByIndex", index)
                uuid = self.call("nvmlDeviceGetUUID", handle)
                card = self._card(handle, uuid, index) | {"driver": driver, "cuda": _cuda(cuda)}
            except (Lost, *UNTOLD):
                continue
            found[uuid] = card
            self._handles[uuid] = handle
            self._places[uuid] = card["pci"] or uuid
        for uuid, card in found.items():
            card["links"] = [other for other in found if other != uuid and self._is_linked(uuid, other)]
        self._listen()
        return {"cards": list(found.values())}

    def _card(self, handle: Any, uuid: str, index: int) -> dict[str, Any]:
        name = self.told("nvmlDeviceGetName", handle)
        memory = self.told("nvmlDeviceGetMemoryInfo", handle)
        pci = self.told("nvmlDeviceGetPciInfo", handle)
        capability = self.told("nvmlDeviceGetCudaComputeCapability", handle)
        mig = self.told("nvmlDeviceGetMigMode", handle)
        mode = self.told("nvmlDeviceGetComputeMode", handle)
        return {
            "uuid": uuid,
            "model": model_of(name or "unknown"),
            "memory_mib": 0 if memory is None else memory.total // MIB,
            "index": index,
            "sharing": "mig" if mig and mig[0] else "exclusive" if mode == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS else "shared",
            "pci": None if pci is None else pci_place(_text(pci.busId)),
            "numa": self.told("nvmlDeviceGetNumaNodeId", handle),
            "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        }

    def _is_linked(self, uuid: str, other: str) -> bool:
        try:
            return self.told("nvmlDeviceGetP2PStatus", self._handles[uuid], self._handles[other], NVLINK_CAPABILITY) == 0
        except Lost:
            return False

    def sample(self) -> dict[str, Any]:
        """Every known card once."""
        if not self._handles:
            self.cards()
        values: dict[str, dict[str, int | None]] = {}
        lost: list[str] = []
        for uuid, handle in self._handles.items():
            try:
                values[uuid] = self._values(handle)
            except Lost:
                lost.append(uuid)
        return {"values": values, "lost": lost}

    def _values(self, handle: Any) -> dict[str, int | None]:
        memory = self.told("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2) or self.told("nvmlDeviceGetMemoryInfo", handle)
        rates = self.told("nvmlDeviceGetUtilizationRates", handle)
        return {
            "temperature_c": self.told("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU),
            "memory_temperature_c": self._field(handle, MEMORY_TEMPERATURE_FIELD),
            "power_mw": self.told("nvmlDeviceGetPowerUsage", handle),
            "energy_mj": self.told("nvmlDeviceGetTotalEnergyConsumption", handle),
            "utilization_percent": None if rates is None else rates.gpu,
            "memory_utilization_percent": None if rates is None else rates.memory,
            "memory_used_mib": None if memory is None else memory.used // MIB,
            "memory_free_mib": None if memory is None else memory.free // MIB,
            "sm_clock_mhz": self.told("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": self.told("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM),
            "throttle_reasons": self.told("nvmlDeviceGetCurrentClocksEventReasons", handle),
            "ecc_uncorrectable": self.told(
                "nvmlDeviceGetTotalEccErrors", handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
            ),
            "ecc_corrected": self.told(
                "nvmlDeviceGetTotalEccErrors", handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC
            ),
        }

    def _field(self, handle: Any, field: int) -> int | None:
        found = self.told("nvmlDeviceGetFieldValues", handle, [field])
        return int(found[0].value.uiVal) if found and found[0].nvmlReturn == 0 else None

    # -- events

    def _listen(self) -> None:
        """A thread that waits for XIDs; the binding lets the interpreter go on meanwhile."""
        if self._listener is None:
            self._listener = threading.Thread(target=self._hear, daemon=True)
            self._listener.start()

    def _hear(self) -> None:
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError:
            return
        places = dict(self._places)
        for handle in self._handles.values():
            try:
                supported = pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError & supported, events)
            except pynvml.NVMLError:
                continue
        while True:
            try:
                event = pynvml.nvmlEventSetWait(events, EVENT_WAIT_MS)
                uuid = pynvml.nvmlDeviceGetUUID(event.device)
            except (pynvml.NVMLError, UnicodeDecodeError) as error:
                if code_of(error) != TIMEOUT:
                    threading.Event().wait(EVENT_WAIT_MS / 1000)
                continue
            if int(event.eventType) & pynvml.nvmlEventTypeXidCriticalError:
                self._tell({"xid": int(event.eventData), "uuid": uuid, "place": places.get(uuid, uuid)})


def _text(value: Any) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _cuda(version: int | None) -> str | None:
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _noter(fd: int) -> Callable[[str], None]:
    shared = mmap.mmap(fd, mmap.PAGESIZE)

    def note(name: str) -> None:
        shared[:64] = name.encode()[:64].ljust(64, b"\0")

    return note


def main() -> None:
    """Answer until the parent closes the pipe. The first argument is the descriptor where the call under way is noted."""
    lock = threading.Lock()

    def tell(told: dict[str, Any]) -> None:
        with lock:
            sys.stdout.buffer.write(to_json(told) + b"\n")
            sys.stdout.buffer.flush()

    observer = Observer(_noter(int(sys.argv[1])), tell)
    for line in sys.stdin.buffer:
        asked = from_json(line)
        try:
            answer = observer.cards() if asked["ask"] == "cards" else observer.sample()
        except pynvml.NVMLError as error:
            is_absent = code_of(error) == LIBRARY_NOT_FOUND  # a machine without NVIDIA's driver has no cards: that is no fault
            answer = {"cards": [], "values": {}, "lost": []} if is_absent else {"problem": f"NVML: {error}"}
        tell({"number": asked["number"], **answer})


if __name__ == "__main__":
    main()
