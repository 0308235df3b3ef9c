"""The NVML backend: the real nvidia-ml-py in its child process, against a driver whose cards are a file."""

import asyncio
import importlib.metadata
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gpuyard_node_agent.backends.nvml import NvmlBackend, detect
from gpuyard_node_agent.domain.samples import clean
from gpuyard_node_agent.ports import Hung, Xid

from tests.support.nvml import MockHardware, build, uuid_of

NOBODY: frozenset[str] = frozenset()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def hardware(library: Path, tmp_path: Path) -> MockHardware:
    """Two ordinary cards."""
    found = MockHardware(tmp_path, library)
    found.write({}, {})
    return found


@pytest.fixture
async def backend(hardware: MockHardware) -> AsyncIterator[NvmlBackend]:
    """An observer of this hardware."""
    found = NvmlBackend({**os.environ, **hardware.environment})
    yield found
    await found.close()


async def test_cards_are_found_with_all_that_they_tell(backend: NvmlBackend, hardware: MockHardware) -> None:
    """Names as people ask for them, NVLink by groups, MIG and exclusive cards as such; what is not told is absent."""
    hardware.write({}, {"nvlink": "-", "mode": 3}, {"mig": 1, "numa": "-", "cc": "-", "name": "Tesla T4"})
    first, second, third = await backend.discover()
    assert (first.uuid, first.model, first.memory_mib, first.pci) == (uuid_of(0), "A100-80GB", 81_920, "0000:07:00")
    assert (first.driver, first.cuda, first.compute_capability, first.numa) == ("570.124.06", "12.8", "8.0", 0)
    assert (first.sharing, second.sharing, third.sharing) == ("shared", "exclusive", "mig")
    assert (first.links, second.links, third.links) == ((uuid_of(2),), (), (uuid_of(0),))
    assert (third.model, third.numa, third.compute_capability) == ("T4", None, None)


async def test_a_sample_has_every_value_in_its_unit_without_reserved_memory(backend: NvmlBackend) -> None:
    """Memory is what tenants use: the driver's own part is not counted."""
    await backend.discover()
    reading = await backend.sample(NOBODY)
    assert reading.lost == NOBODY
    assert dict(reading.values[uuid_of(0)]) == {
        "temperature_c": 41,
        "memory_temperature_c": 47,
        "power_mw": 61_000,
        "energy_mj": 123_456_789,
        "utilization_percent": 97,
        "memory_utilization_percent": 40,
        "memory_used_mib": 2_048,
        "memory_free_mib": 77 * 1024,
        "sm_clock_mhz": 1410,
        "memory_clock_mhz": 1593,
        "throttle_reasons": 4,
        "ecc_uncorrectable": 0,
        "ecc_corrected": 0,
    }


async def test_one_lost_card_and_one_without_ecc_hide_nothing_of_the_third(backend: NvmlBackend, hardware: MockHardware) -> None:
    """B45; and a value that cannot be is dropped (B44)."""
    hardware.write({}, {}, {})
    await backend.discover()
    hardware.write({"util_gpu": 4294967295}, {"ecc": 0, "field82": "-"}, {"lost": 1})
    reading = await backend.sample(NOBODY)
    samples, bad = clean(reading.values, reading.lost)
    assert [sample.is_lost for sample in samples] == [False, False, True]
    assert "utilization_percent" not in samples[0].values
    assert samples[0].values["temperature_c"] == 41
    assert "ecc_uncorrectable" not in samples[1].values
    assert "memory_temperature_c" not in samples[1].values
    assert samples[1].values["temperature_c"] == 41
    assert bad == 1


@pytest.mark.parametrize("fault", [{"lost": 1}, {"err.GetTemperature": 999}, {"err.GetMemoryInfo_v2": 16}])
async def test_a_card_is_lost_however_the_driver_says_so(backend: NvmlBackend, hardware: MockHardware, fault: dict[str, object]) -> None:
    """Lost, reset required, or only "unknown error"; and it is back when it answers."""
    await backend.discover()
    hardware.write({}, fault)
    assert (await backend.sample(NOBODY)).lost == {uuid_of(1)}
    hardware.write({}, {})
    assert (await backend.sample(NOBODY)).lost == NOBODY


async def test_a_card_that_cannot_be_read_does_not_hide_the_others_at_the_start(backend: NvmlBackend, hardware: MockHardware) -> None:
    """Nor is its name needed."""
    hardware.write({"lost": 1}, {"err.GetName": 999}, {"uuid": "-"}, {"name": "-"})
    assert [(card.uuid, card.model) for card in await backend.discover()] == [(uuid_of(3), "unknown")]


async def test_errors_of_memory_are_counted_by_the_driver(backend: NvmlBackend, hardware: MockHardware) -> None:
    """Seen without opening the driver again."""
    await backend.discover()
    hardware.write({"ecc_ue": 3, "ecc_ce": 11}, {})
    found = (await backend.sample(NOBODY)).values[uuid_of(0)]
    assert (found["ecc_uncorrectable"], found["ecc_corrected"]) == (3, 11)


async def test_xids_come_by_themselves(backend: NvmlBackend, hardware: MockHardware) -> None:
    """From a thread of the child that waits for them, with the card's address."""
    await backend.discover()
    found: list[Xid] = []
    async with asyncio.timeout(30):
        while not found:
            hardware.happen(1, 79)
            await asyncio.sleep(0.05)
            found += backend.take_xids()
    assert (found[0].gpu_uuid, found[0].xid, found[0].place) == (uuid_of(1), 79, "0000:0f:00")


async def test_a_driver_that_hangs_is_given_up_with_the_call_it_hangs_in_and_the_next_observer_works(
    backend: NvmlBackend, hardware: MockHardware
) -> None:
    """The child is killed; the agent was never blocked."""
    await backend.discover()
    child = backend._child  # pyright: ignore[reportPrivateUsage] - whether it is really gone is the point
    assert child is not None
    hardware.write({"sleep_ms.GetPowerUsage": 600_000}, {})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.0):
            await backend.sample(NOBODY)
    assert backend.last_call == "nvmlDeviceGetPowerUsage"
    await backend.restart()
    assert child.returncode is not None
    hardware.write({}, {})
    assert set((await backend.sample(NOBODY)).values) == {uuid_of(0), uuid_of(1)}


async def test_an_observer_that_dies_is_a_hang_and_not_an_endless_wait(backend: NvmlBackend, hardware: MockHardware) -> None:
    """The question that was under way fails at once."""
    await backend.discover()
    hardware.write({"sleep_ms.GetPowerUsage": 600_000}, {})
    asking = asyncio.create_task(backend.sample(NOBODY))
    async with asyncio.timeout(30):
        while backend.last_call != "nvmlDeviceGetPowerUsage":
            await asyncio.sleep(0.01)
    child = backend._child  # pyright: ignore[reportPrivateUsage] - it is killed as the system would
    assert child is not None
    child.kill()
    with pytest.raises(Hung, match="died"):
        await asking


async def test_a_driver_that_is_not_loaded_is_told_with_its_reason(backend: NvmlBackend, hardware: MockHardware) -> None:
    """Nothing hangs, nothing is found."""
    hardware.write(init_err=9)
    with pytest.raises(Hung, match="Driver Not Loaded"):
        await backend.discover()


async def test_detecting_counts_cards_and_finds_none_where_no_driver_is(hardware: MockHardware, monkeypatch: pytest.MonkeyPatch) -> None:
    """For tools that decide what to start."""
    for name, value in hardware.environment.items():
        monkeypatch.setenv(name, value)
    assert await detect() == 2
    hardware.write(init_err=9)
    assert await detect() == 0


def test_the_deprecated_package_of_the_same_module_is_not_installed() -> None:
    """`pynvml` on the index is another package, which warns at every import."""
    names = {distribution.metadata["Name"].lower() for distribution in importlib.metadata.distributions()}
    assert "nvidia-ml-py" in names
    assert "pynvml" not in names
