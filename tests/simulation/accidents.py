"""What goes wrong in the simulation, beside deliveries and crashes of services: agents die, machines lose power, networks are cut, cards
get hot or fall off the bus, operators cordon and drain, databases, streams and the bus are away for a while, everything stands still.
Whatever began, ends; after :meth:`Accidents.calm` nothing new begins.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from random import Random

from gpuyard_api import acts
from gpuyard_contracts.messages.asks import PriceV1, SetPricesAskV1
from gpuyard_contracts.messages.placement import NodeCordonV1, NodeUncordonV1
from gpuyard_runtime.faults import Refused, Unavailable
from gpuyard_runtime.testing import Faults, World

from tests.simulation.agent import POINTS, Agent
from tests.simulation.machine import after
from tests.simulation.tenants import principal

HOT_C = 91
FAULTS = Faults(crash=0.012, again=0.02, shuffle=0.08, lose_ack=0.02)

THEMES: dict[str, tuple[str, ...]] = {
    "agents": ("agent_dies", "agent_dies_inside"),
    "network": ("network_is_cut", "most_networks_are_cut"),
    "power": ("power_is_lost",),
    "cards": ("card_gets_hot", "card_is_lost", "card_has_fatal_error"),
    "operators": ("operator_cordons", "operator_drains"),
    "outages": ("database_is_away", "bus_is_away", "stream_is_full", "another_leads", "everything_stands_still"),
    "office": ("prices_change", "tenant_is_suspended"),
}
WEIGHTS = {"most_networks_are_cut": 0.1, "card_has_fatal_error": 0.5, "bus_is_away": 0.5, "everything_stands_still": 0.5}

Deed = Callable[[], str]


@dataclass
class Accidents:
    """Begins and ends what goes wrong. `pending`: (when, what ends) of what has begun."""

    world: World
    agents: list[Agent]
    random: Random
    pending: list[tuple[datetime, Callable[[], None]]] = field(default_factory=list[tuple[datetime, Callable[[], None]]])
    cordons: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]])
    overtaken: set[str] = field(default_factory=set[str])
    """Services that are led by another process, and may not have noticed."""
    is_calm: bool = False
    _holders: int = 0
    _victim: str = ""
    _theme: str = ""

    def _node(self) -> Agent:
        """Whom it hits: mostly the same node in one history, so that the fleet as a whole stays in sight."""
        if not self._victim:
            self._victim = self.random.choice(self.agents).node_id
        if self.random.random() < 0.6:
            return next(agent for agent in self.agents if agent.node_id == self._victim)
        return self.random.choice(self.agents)

    def act(self) -> str:
        """Let one thing go wrong; returns what. Each history has its theme, of which it has most."""
        if not self._theme:
            self._theme = self.random.choice([*THEMES, "network", "network"])
        mostly = THEMES[self._theme]
        names = [name for found in THEMES.values() for name in found]
        weights = [WEIGHTS.get(name, 1.0) * (8.0 if name in mostly else 1.0) for name in names]
        deed: Deed = getattr(self, self.random.choices(names, weights)[0])
        return deed()

    def end_what_is_over(self) -> bool:
        """End what has lasted long enough; whether there was something."""
        now = self._now
        over = [found for found in self.pending if found[0] <= now]
        for item in over:
            item[1]()
            self.pending.remove(item)
        return bool(over)

    def calm(self) -> None:
        """No new accidents from here on: what is under way ends in its own time."""
        self.is_calm = True
        self.world.faults = Faults()
        for agent in self.agents:
            agent.die_at = None

    def heal(self) -> None:
        """Let go of what has no end of its own."""
        for agent in self.agents:
            if not agent.is_up:
                self._bring_up(agent)
        for node_id, holder, gpu_uuid in sorted(self.cordons):
            self.world.publish(NodeUncordonV1(node_id=node_id, holder=holder, gpu_uuid=gpu_uuid or None))
        self.cordons.clear()

    @property
    def _now(self) -> datetime:
        return self.world.clock.now()

    def _later(self, low: float, high: float, end: Callable[[], None]) -> None:
        self.pending.append((after(self._now, self.random.uniform(low, high)), end))

    # Nodes.

    def _bring_up(self, agent: Agent) -> None:
        if not agent.machine.is_on:
            agent.machine.boot()
        agent.start()

    def _up_again(self, agent: Agent) -> Callable[[], None]:
        return lambda: None if agent.is_up else self._bring_up(agent)

    def agent_dies(self) -> str:
        """The agent's process ends; its keeper does not. Sometimes nobody starts it again for longer than its lease."""
        agent = self._node()
        if agent.is_up:
            agent.die()
            self._later(0.0, self.random.choice([1.0, 1.0, 5.0, 40.0]), self._up_again(agent))
        return f"the agent of {agent.node_id} dies"

    def agent_dies_inside(self) -> str:
        """It will die in the middle of its next order or event."""
        agent = self._node()
        agent.die_at = self.random.choice(POINTS)
        return f"the agent of {agent.node_id} will die {agent.die_at}"

    def died_inside(self, agent: Agent) -> None:
        """It did."""
        agent.die()
        self._later(0.0, self.random.choice([1.0, 4.0, 30.0]), self._up_again(agent))

    def network_is_cut(self) -> str:
        """The node reaches nobody, for a moment or beyond its lease."""
        agent = self._node()
        self._cut(agent, self.random.choice([7.0, 20.0, 45.0, 60.0]))
        return f"{agent.node_id} is cut off"

    def _cut(self, agent: Agent, longest: float) -> None:
        agent.is_cut = True

        def join() -> None:
            agent.is_cut = False

        self._later(longest / 2, longest, join)

    def most_networks_are_cut(self) -> str:
        """So many at once that it must be placement that is blind."""
        longest = self.random.choice([8.0, 30.0])
        for agent in self.agents[:-1]:
            self._cut(agent, longest)
        return "all nodes but one are cut off"

    def power_is_lost(self) -> str:
        """The machine is off for a while, then boots."""
        agent = self._node()
        if agent.machine.is_on:
            agent.machine.lose_power(self._now)
            if agent.is_up:
                agent.die()
            self._later(0.5, self.random.choice([2.0, 10.0, 40.0]), self._up_again(agent))
        return f"{agent.node_id} loses its power"

    # Cards.

    def card_gets_hot(self) -> str:
        """Above the threshold, for long enough to be seen, or not."""
        agent = self.random.choice(self.agents)
        card = self.random.choice(agent.machine.cards)
        card.temperature_c = HOT_C

        def cool() -> None:
            card.temperature_c = 40

        self._later(4.0, 25.0, cool)
        return f"{card.uuid} gets hot"

    def card_is_lost(self) -> str:
        """It falls off the bus, and comes back. What runs on it mostly fails."""
        agent = self.random.choice(self.agents)
        card = self.random.choice(agent.machine.cards)
        if card.is_lost or not agent.machine.is_on:
            return "no card is lost"
        card.is_lost = True
        agent.tell_fault("gpu-lost", card.uuid)
        for process in agent.machine.running.values():
            if any(part.gpu_uuid == card.uuid for part in process.order.slices) and self.random.random() < 0.7:
                process.ends_at, process.code = after(self._now, 0.3), 1
        boots = agent.machine.boots

        def back() -> None:
            if card.is_lost and agent.machine.boots == boots:
                card.is_lost = False
                agent.tell_fault("gpu-back", card.uuid)

        self._later(2.0, 20.0, back)
        return f"{card.uuid} is lost"

    def card_has_fatal_error(self) -> str:
        """An XID that only a reboot heals; the machine is booted later."""
        agent = self.random.choice(self.agents)
        card = self.random.choice(agent.machine.cards)
        if agent.machine.is_on:
            agent.tell_fault("xid", card.uuid, 79)
            self._later(5.0, 20.0, lambda: self._reboot(agent))
        return f"{card.uuid} has a fatal error"

    def _reboot(self, agent: Agent) -> None:
        if agent.machine.is_on:
            agent.machine.lose_power(self._now)
        agent.die()
        self._bring_up(agent)

    # Operators.

    def operator_cordons(self) -> str:
        """Keeps new work off a node or card for a while."""
        return self._cordon(is_drain=False)

    def operator_drains(self) -> str:
        """Moves work away from a node for a while."""
        return self._cordon(is_drain=True)

    def _cordon(self, *, is_drain: bool) -> str:
        agent = self.random.choice(self.agents)
        self._holders += 1
        holder = f"operator/o{self._holders}"
        gpu_uuid = self.random.choice(agent.machine.cards).uuid if self.random.random() < 0.4 else ""
        key = (agent.node_id, holder, gpu_uuid)
        try:
            self.world.publish(NodeCordonV1(node_id=agent.node_id, holder=holder, gpu_uuid=gpu_uuid or None, is_drain=is_drain))
        except Unavailable:
            return "an operator finds the bus away"
        self.cordons.add(key)

        def uncordon() -> None:
            with suppress(Unavailable):  # then it is let go of in the end
                self.world.publish(NodeUncordonV1(node_id=agent.node_id, holder=holder, gpu_uuid=gpu_uuid or None))
                self.cordons.discard(key)

        self._later(2.0, 20.0, uncordon)
        return f"{holder} {'drains' if is_drain else 'cordons'} {gpu_uuid or agent.node_id}"

    # What everybody stands on.

    def database_is_away(self) -> str:
        """A service cannot commit for a while."""
        if any(not member.is_up for member in self.world.members.values()):
            return "no database is away"
        name = self.random.choice(sorted(self.world.databases))
        database = self.world.databases[name]
        database.is_away = True
        self.world.faults = replace(self.world.faults, crash=0.0)  # who starts without its database waits for it

        def back() -> None:
            database.is_away = False
            if not self.is_calm and not any(found.is_away for found in self.world.databases.values()):
                self.world.faults = FAULTS

        self._later(0.5, 8.0, back)
        return f"the database of {name} is away"

    def bus_is_away(self) -> str:
        """Nobody can publish or ask for a while."""
        self.world.bus.is_away = True

        def back() -> None:
            self.world.bus.is_away = False

        self._later(0.5, self.random.choice([2.0, 4.0, 20.0]), back)
        return "the bus is away"

    def stream_is_full(self) -> str:
        """One stream takes nothing for a while: who publishes waits."""
        name = self.random.choice(["EVT_PLACEMENT", "EVT_SCHEDULER", "EVT_NODE_AGENT", "CMD_NODE", "CMD_PLACEMENT", "FLEET", "EVT_BILLING"])
        stream = self.world.bus.streams[name]
        stream.is_full = True

        def drained() -> None:
            stream.is_full = False

        self._later(0.5, 8.0, drained)
        return f"{name} is full"

    def give_way(self) -> None:
        """Somebody has noticed that another process leads: it ends, and starts as the leader that comes after."""
        for name in sorted(self.overtaken):
            self.world.crash(name)
        self.overtaken.clear()

    def another_leads(self) -> str:
        """Another process takes the lead of a service for a moment: the one that we know may not commit any more."""
        name = self.random.choice(sorted(self.world.databases))
        self.world.databases[name].epoch += 1
        self.overtaken.add(name)
        return f"another process leads {name}"

    # Offices.

    def prices_change(self) -> str:
        """An operator sets other prices, from now on or soon."""
        self._holders += 1
        prices = tuple(PriceV1(model=model, micros_per_gpu_hour=self.random.randrange(1, 9_999_999)) for model in ("A100", "T4", "*"))
        begin = self.random.choice([None, after(self._now, 5.0)])
        try:
            self.world.ask(SetPricesAskV1(request_id=f"p{self._holders}", prices=prices, valid_from=begin))
        except (Refused, Unavailable) as error:
            return f"prices stay as they are: {error}"
        return "prices change"

    def tenant_is_suspended(self) -> str:
        """A tenant may start nothing for a while; what runs goes on."""
        if self._suspend(is_suspended=True):
            self._later(2.0, 12.0, lambda: self._let_in_again())
        return "beta is suspended"

    def _let_in_again(self) -> None:
        if not self._suspend(is_suspended=False):
            self._later(1.0, 2.0, self._let_in_again)

    def _suspend(self, *, is_suspended: bool) -> bool:
        """By the api, which may not be there."""
        member = self.world.members["api"]
        if not member.is_up or member.database.is_away:
            return False
        version = member.store.tenants["beta"].version
        self.world.act("api", acts.change_tenant(principal(None, self._now), "beta", version, {"is_suspended": is_suspended}))
        return True

    def everything_stands_still(self) -> str:
        """A jump in time: nobody does anything meanwhile."""
        seconds = self.random.choice([4.0, 8.0, 16.0, 35.0, 150.0])
        self.world.advance(seconds)
        return f"everything stands still for {seconds:.0f} s"
