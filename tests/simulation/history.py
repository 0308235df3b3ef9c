"""One seed's history: everything that could happen next, drawn from the seed, until it has to come to rest.

:func:`run` is what the tests call. A step is a delivery, a publication, a tick, an act of a node, of a tenant, an accident, or the passing
of time; after each the checkers look. A failing seed says its last steps; the same seed gives the same history again.
"""

from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any, TypeVar

from gpuyard_api import acts
from gpuyard_api.app import make_service
from gpuyard_api.hub import Hub
from gpuyard_billing.app import service as billing_service
from gpuyard_billing.settings import BillingSettings
from gpuyard_contracts.envelope import Envelope
from gpuyard_contracts.messages.placement import NodeUncordonV1
from gpuyard_monitor.app import service as monitor_service
from gpuyard_monitor.settings import MonitorSettings
from gpuyard_placement.app import SERVICE as PLACEMENT
from gpuyard_runtime.faults import Fenced, Unavailable
from gpuyard_runtime.service import Service
from gpuyard_runtime.testing import World
from gpuyard_scheduler.app import service as scheduler_service
from gpuyard_scheduler.domain.policy import Policy

from tests.simulation.accidents import FAULTS, Accidents
from tests.simulation.agent import Agent, AgentDied
from tests.simulation.checkers import Checkers
from tests.simulation.endings import check_rest, unrest
from tests.simulation.machine import Card, Machine
from tests.simulation.record import Record, Violation
from tests.simulation.tenants import QUOTAS, Tenants, principal

T = TypeVar("T")

STEPS = 750
"""Steps of trouble in one history."""
STEP_SECONDS = 0.001
REST_STEPS = 12_000
REST_SECONDS = 1500.0
LOOK_AGAIN_SECONDS = 30.0
MOST_A_ROUND = 1500
FEW_A_ROUND = 25
SHOWN = 60
"""Steps that a failure shows."""

A100, SMALL, T4, V100 = ("A100-80GB", 81_920), ("A100-40GB", 40_960), ("T4", 15_360), ("V100-16GB", 16_384)
FLEETS = (
    (("a", 4, A100), ("b", 4, A100), ("c", 2, SMALL), ("d", 4, T4)),
    (("a", 4, A100), ("b", 4, A100), ("c", 2, SMALL), ("d", 4, T4)),
    (("a", 4, A100), ("d", 4, T4)),
    (("a", 2, A100), ("b", 2, A100), ("c", 2, A100), ("d", 2, T4), ("e", 3, V100), ("f", 2, T4)),
)
"""Nodes with their cards; a V100 is not shared. One fleet for each history."""


GUARANTEES = (0, 3000, 1000)
"""One for each tenant, in turn."""
TENANT: dict[str, Any] = {
    "sla": "silver", "weight": 100, "max_waiting": 25, "max_requests_per_minute": 600, "is_suspended": False
}  # fmt: skip


class _NoEvents:
    """An event source with nothing in it: nobody verifies here."""

    async def allocation_events(self) -> AsyncIterator[list[Envelope[Any]]]:
        """Nothing."""
        for batch in ():
            yield batch


async def _prune(before: Any) -> None:
    """Nothing is that old."""


def services() -> list[Service[Any]]:
    """All services with a database, as the product puts them together; the scheduler evicts earlier and more than the product does."""
    return [
        scheduler_service(Policy(preempt="fleet", min_run=5, min_run_spot=1)),
        PLACEMENT,
        monitor_service(MonitorSettings()),
        billing_service(BillingSettings(), _NoEvents()),
        make_service(Hub(), _prune),
    ]


class History:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(f"history {seed}")
        self.world = World(services(), seed=seed, faults=FAULTS, max_batch=8)
        machines = [
            Machine(name, tuple(Card(f"GPU-{name}-{number}", *kind, is_shared=kind is not V100) for number in range(cards)), 12_000, 64_000)
            for name, cards, kind in self.random.choice(FLEETS)
        ]
        self.agents = [Agent(self.world, machine, self.random, self.random.choice([0.0, 0.0, 0.0, 1.5, -1.5])) for machine in machines]
        self.tenants = Tenants(self.world, machines, self.random)
        self.accidents = Accidents(self.world, self.agents, self.random)
        self.checkers = Checkers(Record(self.world, self.agents, self.tenants))
        self.steps = 0
        for number, (tenant, (milli, memory)) in enumerate(QUOTAS.items()):
            wanted = TENANT | {"tenant": tenant, "name": tenant, "quota_gpu_milli": milli, "quota_gpu_memory_mib": memory}
            wanted |= {"guarantee_gpu_milli": GUARANTEES[number % len(GUARANTEES)], "weight": self.random.choice([0, 100, 100, 300])}
            self.world.act("api", acts.create_tenant(principal(None, self.world.clock.now()), wanted))
        self.look()

    def run(self) -> None:
        """Trouble, then rest, then the final checks. Raises Violation, with the last steps in its notes."""
        try:
            for _ in range(STEPS):
                self.step()
            self.rest()
            self.start_again()
            check_rest(self.checkers.record, self.checkers)
        except Violation as violation:
            violation.add_note(f"seed {self.seed}, step {self.steps}, {self.world.clock.now().isoformat()}; the last steps:")
            violation.add_note("\n".join(self.world.log[-SHOWN:]))
            raise

    # Steps.

    def step(self) -> None:
        """One thing that can happen."""
        self.end_accidents()
        draw = self.random.random()
        if draw < 0.045:
            self.pass_time(self.random.choice([0.05, 0.3, 1.0, 2.0, 3.0]))
        elif draw < 0.085:
            self.log(f"tenants: {self._unless_fenced(self.tenants.act)}")
        elif draw < 0.1:
            self.log(f"accident: {self._unless_fenced(self.accidents.act)}")
        elif not self.work():
            self.pass_time(self.random.choice([0.3, 1.0, 1.0, 2.0]))
        self.look()

    def _unless_fenced(self, act: Callable[[], T]) -> T | None:
        """Let something happen; a service that finds another process in its lead ends over it."""
        try:
            return act()
        except Fenced:
            self.accidents.give_way()
            return None

    def end_accidents(self) -> None:
        """What has lasted long enough ends."""
        if self._unless_fenced(self.accidents.end_what_is_over) is not False:
            self.checkers.check()

    def work(self) -> bool:
        """A service or a node does something. False: nobody can."""
        order = [self._node_acts, self._service_acts]
        if self.random.random() < 0.7:
            order.reverse()
        return any(act() for act in order)

    def _service_acts(self) -> bool:
        return self._unless_fenced(self.world.step) is not False

    def _node_acts(self) -> bool:
        found = [(agent, name, act) for agent in self.agents for name, act in agent.choices()]
        if not found:
            return False
        agent, name, act = found[self.random.randrange(len(found))]
        self.log(f"{agent.node_id} {name}")
        try:
            act()
        except AgentDied as died:
            self.log(f"the agent of {agent.node_id} dies {died}")
            self.accidents.died_inside(agent)
        except Unavailable as away:
            self.log(f"{agent.node_id}: {away}")
        return True

    def pass_time(self, seconds: float) -> None:
        """The clock moves; processes end at their instants, and hearts mostly go on beating meanwhile."""
        left = seconds
        while left > 0:
            self.world.advance(min(left, 1.0))
            left -= 1.0
            now = self.world.clock.now()
            for agent in self.agents:
                agent.machine.pass_time(now)
                if self.random.random() < 0.9:
                    agent.beat_if_due()
            placement = self.world.members["placement"]
            if placement.is_up and placement.asked and self.random.random() < 0.9:
                self._unless_fenced(placement.do_asked)
        self.log(f"-- {self.world.clock.now():%H:%M:%S.%f}")

    def look(self) -> None:
        """A step has taken a moment; the checkers look at everything."""
        self.steps += 1
        now = self.world.clock.advance(STEP_SECONDS)
        for agent in self.agents:
            agent.machine.pass_time(now)
        self.checkers.check()

    def log(self, line: str) -> None:
        """Remember a step."""
        self.world.log.append(line)

    # Rest.

    def rest(self) -> None:
        """Nothing new goes wrong: run until nothing is left to happen. Raises Violation where that does not come."""
        self.accidents.calm()
        began, steps, looked_at = self.world.clock.now(), self.steps, -LOOK_AGAIN_SECONDS
        while self.accidents.pending or unrest(self.checkers.record) != "":
            passed = (self.world.clock.now() - began).total_seconds()
            if passed > REST_SECONDS or self.steps - steps > REST_STEPS:
                raise Violation("INV-3", f"no rest after {passed:.0f} s and {self.steps - steps} steps: {unrest(self.checkers.record)}")
            self.end_accidents()
            if not self.accidents.pending and passed - looked_at > LOOK_AGAIN_SECONDS:
                self.people_look()
                self.look()
                looked_at = passed
            most = MOST_A_ROUND if self._is_whole() else FEW_A_ROUND
            for _ in range(most):
                if not self.work():
                    break
                self.look()
            self._unless_fenced(self.tenants.post)
            self.pass_time(self.random.choice([0.5, 2.0, 2.5, 3.0]))
            self.look()

    def start_again(self) -> None:
        """Every service dies once more and starts on what it committed. Raises Violation where that makes anything of jobs or money."""
        before = self._told()
        for name in self.world.members:
            self.world.crash(name)
            self.world.restart(name)
        self.look()
        for _ in range(3):
            while self.work():
                self.look()
            self.pass_time(1.0)
            self.look()
        news = self._told() - before
        if news:
            raise Violation("restart", f"a restart at rest says something new: {sorted(news)[:3]}")

    def _told(self) -> set[tuple[str, str]]:
        """Everything said so far about jobs, allocations and money, by type and id."""
        committed = self.checkers.record.committed.values()
        return {(event.type, event.id) for events in committed for event in events if hasattr(event.data, "job_id")}

    def _is_whole(self) -> bool:
        """Whether bus, streams and databases are there; else services try again and again at one instant."""
        bus = self.world.bus
        away = [
            bus.is_away,
            *(found.is_away for found in self.world.databases.values()),
            *(found.is_full for found in bus.streams.values()),
        ]
        return not any(away)

    def people_look(self) -> None:
        """Tenants cancel what would never end; operators let go of what they still hold, and start what is down."""
        self.accidents.heal()
        self.tenants.cancel_the_endless()
        for node_id, holder, gpu_uuid in sorted(self.checkers.record.rows("placement", "cordons")):
            if holder.startswith("operator/"):
                self.world.publish(NodeUncordonV1(node_id=node_id, holder=holder, gpu_uuid=gpu_uuid or None))


def run(seed: int) -> History:
    """One whole history. Raises Violation."""
    history = History(seed)
    history.run()
    return history
