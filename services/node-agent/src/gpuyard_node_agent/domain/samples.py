"""Readings of cards, cleaned: what cannot be is dropped and counted, what was not told stays absent.

Rare wild values (4294967295 % of utilisation, a negative temperature of the die) come from drivers and reach every average and every alarm
behind them if they are not stopped here (NVIDIA/DCGM#199).
"""

from collections.abc import Mapping
from dataclasses import dataclass

RANGES: dict[str, tuple[int, int]] = {
    "temperature_c": (-40, 150),
    "memory_temperature_c": (-40, 150),
    "power_mw": (0, 3_000_000),
    "energy_mj": (0, 2**53 - 1),
    "utilization_percent": (0, 100),
    "memory_utilization_percent": (0, 100),
    "memory_used_mib": (0, 2**24),
    "memory_free_mib": (0, 2**24),
    "sm_clock_mhz": (0, 10_000),
    "memory_clock_mhz": (0, 30_000),
    "throttle_reasons": (0, 2**32 - 1),
    "ecc_uncorrectable": (0, 2**40),
    "ecc_corrected": (0, 2**48),
}
"""The values that a real card can have, ends included."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One card's reading. `values` has only what was told and can be; a lost card has none."""

    gpu_uuid: str
    values: Mapping[str, int]
    is_lost: bool = False


def clean(raw: Mapping[str, Mapping[str, int | None]], lost: frozenset[str]) -> tuple[tuple[Sample, ...], int]:
    """Samples by card, in order of UUID, and how many values were dropped. Lost cards are said to be lost and nothing else."""
    found: list[Sample] = []
    bad = 0
    for uuid in sorted({*raw, *lost}):
        if uuid in lost:
            found.append(Sample(uuid, {}, is_lost=True))
            continue
        told = {name: value for name, value in raw[uuid].items() if value is not None and name in RANGES}
        good = {name: value for name, value in told.items() if RANGES[name][0] <= value <= RANGES[name][1]}
        bad += len(told) - len(good)
        found.append(Sample(uuid, good))
    return tuple(found), bad
