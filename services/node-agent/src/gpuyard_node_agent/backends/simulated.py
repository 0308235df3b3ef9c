"""Simulated cards: they warm up under load, and misbehave on request.

A fault stays until `recover` (a silence or a hang may have its own end). Nothing here is random: the same requests give the same readings.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard_contracts.messages.asks import InjectFaultAskV1, InjectReplyV1

from gpuyard_node_agent.backends.profiles import Profile, machine_of
from gpuyard_node_agent.domain.model import Card, Machine
from gpuyard_node_agent.ports import Clock, Reading, Xid

FOREVER_MS = 2**62


@dataclass
class _Behaviour:
    """One card now; what is forced upon it overrides what its load would make of it."""

    celsius: int
    energy_mj: int = 0
    at_ms: int = 0
    forced_celsius: int | None = None
    ecc_uncorrectable: int = 0
    is_lost: bool = False


class SimulatedBackend:
    """A :class:`gpuyard_node_agent.ports.Backend`. Temperature goes a quarter of the way to its goal with each sample."""

    name = "simulated"

    def __init__(self, profile: Profile, node_id: str, clock: Clock) -> None:
        self.machine: Machine = machine_of(profile, node_id)
        self._profile = profile
        self._clock = clock
        self._cards = {card.uuid: _Behaviour(profile.idle_c, at_ms=clock.ms()) for card in self.machine.cards}
        self._xids: list[Xid] = []
        self._hung_until_ms = 0
        self._silent_until_ms = 0

    @property
    def is_silent(self) -> bool:
        """The node is to send no heartbeat and no telemetry now."""
        return self._clock.ms() < self._silent_until_ms

    async def discover(self) -> tuple[Card, ...]:
        """The profile's cards, without lost ones."""
        await self._hang()
        return tuple(card for card in self.machine.cards if not self._cards[card.uuid].is_lost)

    async def sample(self, busy: frozenset[str]) -> Reading:
        """Every card as its load makes it."""
        await self._hang()
        at = self._clock.ms()
        values = {uuid: self._read(uuid, uuid in busy, at) for uuid, card in self._cards.items() if not card.is_lost}
        return Reading(values, frozenset(uuid for uuid, card in self._cards.items() if card.is_lost))

    async def _hang(self) -> None:
        """What is hung answers to nobody; the caller's deadline ends this."""
        while True:
            if self._clock.ms() >= self._hung_until_ms:
                return
            await asyncio.sleep(0.05)

    def _read(self, uuid: str, is_busy: bool, at_ms: int) -> dict[str, int | None]:
        card, profile = self._cards[uuid], self._profile
        goal = profile.busy_c if is_busy else profile.idle_c
        step = (goal - card.celsius) // 4
        card.celsius = (
            card.forced_celsius
            if card.forced_celsius is not None
            else card.celsius + (step or (goal > card.celsius) - (goal < card.celsius))
        )
        power_mw = profile.busy_mw if is_busy else profile.idle_mw
        card.energy_mj += power_mw * max(at_ms - card.at_ms, 0) // 1000
        card.at_ms = at_ms
        used_mib = profile.memory_mib * 3 // 4 if is_busy else 4
        return {
            "temperature_c": card.celsius,
            "memory_temperature_c": card.celsius + 6 if profile.has_nvlink else None,  # a T4 does not tell
            "power_mw": power_mw,
            "energy_mj": card.energy_mj,
            "utilization_percent": 94 if is_busy else 0,
            "memory_utilization_percent": 41 if is_busy else 0,
            "memory_used_mib": used_mib,
            "memory_free_mib": profile.memory_mib - used_mib,
            "sm_clock_mhz": profile.sm_clock_mhz if is_busy else 210,
            "memory_clock_mhz": profile.memory_clock_mhz,
            "throttle_reasons": 0 if is_busy else 1,
            "ecc_uncorrectable": card.ecc_uncorrectable,
            "ecc_corrected": 0,
        }

    def take_xids(self) -> Sequence[Xid]:
        """XIDs since the last call."""
        found, self._xids = self._xids, []
        return found

    async def restart(self) -> None:
        """Nothing to start anew: a simulated hang lasts as long as it was asked to."""

    async def close(self) -> None:
        """Nothing to let go."""

    # -- faults

    def inject(self, ask: InjectFaultAskV1) -> InjectReplyV1:
        """Make a card or the node misbehave, or let it recover."""
        if ask.fault in ("hang", "silence"):
            until = FOREVER_MS if ask.value is None else self._clock.ms() + ask.value * 1000
            if ask.fault == "hang":
                self._hung_until_ms = until
            else:
                self._silent_until_ms = until
            return InjectReplyV1(
                is_done=True, detail=f"{ask.fault} until it recovers" if ask.value is None else f"{ask.fault} for {ask.value} s"
            )
        if ask.fault == "recover" and ask.gpu is None:
            self._hung_until_ms = self._silent_until_ms = 0
            for uuid in self._cards:
                self._recover(uuid)
            return InjectReplyV1(is_done=True, detail="the node and all its cards recover")
        card = self._find(ask.gpu)
        if card is None:
            return InjectReplyV1(is_done=False, detail=f"there is no card {ask.gpu!r}; give an index below {len(self._cards)} or a UUID")
        return InjectReplyV1(is_done=True, detail=self._inject(card, ask))

    def _find(self, gpu: str | None) -> Card | None:
        wanted = "0" if gpu is None else gpu
        return next((card for card in self.machine.cards if wanted in (card.uuid, str(card.index))), None)

    def _inject(self, card: Card, ask: InjectFaultAskV1) -> str:
        behaviour = self._cards[card.uuid]
        if ask.fault == "temperature":
            behaviour.forced_celsius = min(96 if ask.value is None else ask.value, 150)
            return f"{card.uuid} is at {behaviour.forced_celsius} °C"
        if ask.fault == "ecc":
            behaviour.ecc_uncorrectable += 1 if ask.value is None else ask.value
            return f"{card.uuid} counts {behaviour.ecc_uncorrectable} uncorrectable errors"
        if ask.fault == "xid":
            number = 79 if ask.value is None else ask.value
            self._xids.append(Xid(card.uuid, number, card.pci or card.uuid, "injected"))
            return f"{card.uuid} tells XID {number}"
        if ask.fault == "lost":
            behaviour.is_lost = True
            return f"{card.uuid} is lost"
        self._recover(card.uuid)
        return f"{card.uuid} recovers"

    def _recover(self, uuid: str) -> None:
        card = self._cards[uuid]
        card.forced_celsius = None
        card.is_lost = False
