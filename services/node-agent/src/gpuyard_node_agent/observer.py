"""Watching the cards: finds them, samples them in time or says that it cannot, and turns what changed into health events.

A hung driver is a fault of its own and hides nothing else: old values are not repeated, the inventory stays, heartbeats go on elsewhere.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuyard_contracts.envelope import Envelope
from gpuyard_runtime.faults import Unavailable
from gpuyard_runtime.logs import log_of
from pydantic_core import from_json, to_json

from gpuyard_node_agent import mapping
from gpuyard_node_agent.domain import faults
from gpuyard_node_agent.domain.faults import Fault, XidFilter
from gpuyard_node_agent.domain.kernel_log import XidLine, pci_place
from gpuyard_node_agent.domain.model import Card, Machine
from gpuyard_node_agent.domain.samples import clean
from gpuyard_node_agent.node import Node
from gpuyard_node_agent.ports import Backend, Hung, Reading

HEALTH_LANE = "health"
Publish = Callable[[Envelope[Any]], Awaitable[Any]]


def merge(known: tuple[Card, ...], found: tuple[Card, ...]) -> tuple[Card, ...]:
    """Cards do not leave a running machine: one that is not found any more is kept, to be told as lost."""
    seen = {card.uuid for card in found}
    return tuple(sorted((*found, *(card for card in known if card.uuid not in seen)), key=lambda card: (card.index, card.uuid)))


class Observer:
    """The node's eyes. `room`: CPU in milli and memory in MiB of the machine."""

    def __init__(
        self, node: Node, backend: Backend, publish: Publish, *, inventory: Path, deadline_seconds: float, room: tuple[int, int]
    ) -> None:
        self.bad_samples = 0
        self.problem: str | None = "the cards have not been found yet"
        self.last: Reading | None = None
        self._node = node
        self._backend = backend
        self._publish = publish
        self._inventory = inventory
        self._deadline_seconds = deadline_seconds
        self._room = room
        self._xids = XidFilter()
        self._found: frozenset[str] = frozenset()
        self._log = log_of("observer")

    def recall(self) -> None:
        """The cards as they were last found in this boot: what the node says of itself until it has looked."""
        try:
            told = from_json(self._inventory.read_bytes())
            if told["boot"] == self._node.boot_id:
                self._set_machine(mapping.cards_of(told["cards"]))
        except (OSError, ValueError, KeyError, TypeError):
            return

    def _set_machine(self, cards: tuple[Card, ...]) -> None:
        self._node.machine = Machine(cards, *self._room)

    def say(self, *told: Fault) -> tuple[tuple[str, Envelope[Any]], ...]:
        """Faults as events in the lane of health."""
        node = self._node
        return tuple((HEALTH_LANE, mapping.health(fault, node.node_id, node.boot_id, node.clock.now())) for fault in told)

    def _see(self, observed: faults.Observed, told: tuple[Fault, ...]) -> None:
        """Keep what was seen, if it changed, together with what is to be said of it."""
        node = self._node
        if observed == node.store.observed and not told:
            return
        events = self.say(*told)
        node.store.see(observed, *events)
        for lane, event in events:
            node.outlet.put(lane, event)
        for fault in told:
            self._log.warning("fault", kind=fault.kind, gpu=fault.gpu_uuid, xid=fault.xid, detail=fault.detail)

    async def discover(self) -> bool:
        """Find the cards; whether the observer answered in time."""
        node = self._node
        try:
            async with asyncio.timeout(self._deadline_seconds):
                found = await self._backend.discover()
        except (TimeoutError, Hung) as error:
            await self._hung("discover", error)
            return False
        known = () if node.machine is None else node.machine.cards
        self._found = frozenset(card.uuid for card in found)
        cards = merge(known, found)
        if node.machine is None or cards != known:
            self._set_machine(cards)
            self._keep(cards)
            self._log.info("cards", found=len(found), known=len(cards), backend=self._backend.name)
        self.problem = None
        return True

    def _keep(self, cards: tuple[Card, ...]) -> None:
        half = self._inventory.with_suffix(".half")
        try:
            half.write_bytes(to_json({"boot": self._node.boot_id, "cards": mapping.cards_json(cards)}))
            half.replace(self._inventory)
        except OSError as error:
            self._log.warning("inventory_unkept", detail=error.strerror)

    async def _hung(self, what: str, error: Exception) -> None:
        self.last = None
        detail = str(error) or f"no answer within {self._deadline_seconds:g} s"
        last_call = getattr(self._backend, "last_call", "")
        self.problem = f"{what}: {detail}{f' (in {last_call})' if last_call else ''}"
        self._see(*faults.hung(self._node.store.observed, self.problem))
        await self._backend.restart()

    async def look(self) -> bool:
        """One sample of every card, published as telemetry, its changes as health events; whether the observer answered in time."""
        node = self._node
        try:
            async with asyncio.timeout(self._deadline_seconds):
                reading = await self._backend.sample(node.busy)
        except (TimeoutError, Hung) as error:
            await self._hung("sample", error)
            return False
        self.last, self.problem = reading, None
        self._see(*faults.answers(node.store.observed))
        known = frozenset(() if node.machine is None else (card.uuid for card in node.machine.cards))
        lost = frozenset((reading.lost | (known - self._found if self._found else frozenset())) - reading.values.keys())
        samples, bad = clean(reading.values, lost)
        self.bad_samples += bad
        self._see(*faults.compare(node.store.observed, samples))
        for xid in self._backend.take_xids():
            self.on_xid(XidLine(pci_place(xid.place), xid.xid, xid.detail), xid.gpu_uuid, "nvml")
        event = mapping.telemetry(samples, node.node_id, node.boot_id, sequence=node.clock.ms(), bad=self.bad_samples, now=node.clock.now())
        try:
            await self._publish(event)
        except Unavailable:
            node.count("telemetry-unpublished")  # the next one is worth more
        return True

    def on_kernel_line(self, line: XidLine, sequence: int) -> None:
        """The kernel's log tells of an XID."""
        node = self._node
        card = next((card for card in node.machine.cards if card.pci and pci_place(card.pci) == line.place), None) if node.machine else None
        node.store.see(replace(node.store.observed, log_sequence=sequence))
        if card is not None:
            self.on_xid(line, card.uuid, "kmsg")

    def on_xid(self, line: XidLine, gpu_uuid: str, source: str) -> None:
        """An XID of one card; told once, though two sources tell of it."""
        at = self._node.clock.ms()
        if self._xids.is_new(line.place, line.xid, source, at):
            fault = Fault("xid", f"{gpu_uuid}/{line.xid}/{at}", gpu_uuid, line.xid, detail=line.detail)
            self._see(self._node.store.observed, (fault,))
