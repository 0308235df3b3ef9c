"""A gpuyard on this machine: started in order, kept alive by supervisord, found again by its state folder.

:class:`Stack` is what `gpuyard-local`, the demo, the end-to-end tests and the bench work with. Its promises: everything listens on
loopback only; a second start of a running stack does nothing; what a killed supervisor left behind is ended by exact identity
(:mod:`gpuyard_local.processes`), and nothing else is touched. Workloads belong to their node agent, which finds them again.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard_contracts import permissions

from gpuyard_local import bus_config, database, keepers, leftovers, nats, ports, processes, readiness, services
from gpuyard_local import facts as remembered
from gpuyard_local.facts import Facts
from gpuyard_local.hardware import count_gpus
from gpuyard_local.layout import Layout, socket_path
from gpuyard_local.postgres import Postgres
from gpuyard_local.processes import ProcessId
from gpuyard_local.programs import Program
from gpuyard_local.supervision import Supervisor

if TYPE_CHECKING:
    from gpuyard_runtime.bus import Bus as OperatorBus
    from nats.aio.client import Client as Bus

READY_SECONDS = 60.0
RESTART_SECONDS = 10.0


class NotRunning(Exception):
    """The stack is not up."""


def quiet(line: str) -> None:
    """Says nothing."""


class Stack:
    """The stack of one state folder.

    `api_port`: that very port, not a free one. Without `own_gpus` this machine's cards are left alone. `settings`: more environment by
    program (``{"placement": {"GPUYARD_LEASE_MS": "3000"}}``), taken up at the next start.
    """

    def __init__(
        self,
        state: Path,
        *,
        api_port: int | None = None,
        nodes: Mapping[str, str] = services.SIMULATED,
        own_gpus: bool = True,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        say: Callable[[str], None] = quiet,
    ) -> None:
        self.layout = Layout(state.resolve())  # one name for one folder, whichever link led here
        self._api_port = api_port
        self._nodes = dict(nodes)
        self._own_gpus = own_gpus
        self._settings = settings or {}
        self._say = say

    # Where things are

    @property
    def facts(self) -> Facts:
        """Ports, nodes and folders. Raises :class:`NotRunning` where no stack was ever made here."""
        found = remembered.load(self.layout)
        if found is None:
            raise NotRunning(f"no stack was made in {self.layout.root}")
        return found

    @property
    def api_url(self) -> str:
        """Where the api is."""
        return services.api_url(self.facts)

    @property
    def nats_url(self) -> str:
        """Where the bus is."""
        return services.nats_url(self.facts)

    @property
    def admin_token(self) -> str:
        """The administrator's token."""
        return self.layout.admin_token.read_text(encoding="utf-8").strip()

    @property
    def node_ids(self) -> tuple[str, ...]:
        """The stack's nodes."""
        return tuple(self.facts.nodes)

    def dsn(self, role: str = database.SUPERUSER) -> str:
        """Where and as whom to connect to the database: a service's role, or the superuser."""
        return database.dsn(self.layout, role, self.facts.ports["postgres"])

    def health_ports(self) -> dict[str, int]:
        """By program, the port of its /livez, /readyz and /metrics."""
        return {program.name: program.health_port for program in self._programs(self.facts) if program.health_port is not None}

    async def operator(self) -> "OperatorBus":
        """The runtime's connection to the bus, as the operator: asks, streams, JetStream's API. The caller closes it."""
        from gpuyard_local.operating import open_bus

        return await open_bus(self.nats_url, bus_config.password_of(self.layout, bus_config.OPERATOR))

    async def bus(self, user: str = bus_config.OPERATOR) -> "Bus":
        """A bare connection to the bus as one of its users (default: the operator). The caller closes it."""
        import nats as client

        async def unheard(error: Exception) -> None:
            """What goes wrong is raised to whoever asked; nobody reads it from a log here."""

        inbox = permissions.of_operator().inbox if user == bus_config.OPERATOR else permissions.inbox_of(user)
        return await client.connect(
            self.nats_url,
            user=user,
            password=bus_config.password_of(self.layout, user),
            inbox_prefix=inbox.encode(),
            error_cb=unheard,
            allow_reconnect=True,
            max_reconnect_attempts=-1,
            connect_timeout=5,
        )

    # Who runs

    def is_up(self) -> bool:
        """The stack's supervisor answers."""
        found = remembered.load(self.layout)
        return found is not None and self._supervisor(found).is_running()

    def states(self) -> dict[str, tuple[str, int]]:
        """By program: its state in supervisord's words and its pid (0 for none)."""
        return self._running_supervisor().states()

    def pids(self) -> dict[str, int]:
        """By program, the pid of what runs."""
        return {name: pid for name, (_, pid) in self.states().items() if pid}

    def process(self, name: str) -> ProcessId | None:
        """Who a program is now; None where it does not run."""
        found = processes.recorded(self.layout.record(name))
        return found if found is not None and processes.is_alive(found) else None

    # Starting and stopping

    def start(self, *, seconds: float = READY_SECONDS) -> bool:
        """Bring everything up and wait until it is ready. False if it was up already. Raises what hindered it."""
        self.layout.make()
        with self._alone():
            if self.is_up():
                self._bring_up(self.facts, seconds, quiet)
                return False
            self._end_leftovers()
            facts = self._settle_facts()
            self._launch(facts)
            self._bring_up(facts, seconds, self._say)
            if os.geteuid() == 0:
                self._say("workloads run as root, as the agents do here: for tenants who do not trust each other see docs/failure.md")
            return True

    def stop(self) -> bool:
        """Stop everything, workloads too; what was stored stays. False if nothing ran."""
        if remembered.load(self.layout) is None:
            return False
        with self._alone():
            supervisor = self._supervisor(self.facts)
            who = supervisor.process()
            if who is not None:
                self._stop_programs(supervisor)
                supervisor.shut_down()
                if not processes.wait_gone(who, 30.0):
                    processes.end([who], grace_seconds=5.0)
            left = self._end_leftovers()
            workloads = keepers.end(self.layout)
            return who is not None or bool(left) or workloads > 0

    def purge(self) -> None:
        """Stop everything and delete all of it: data, secrets, configuration, and what lies outside the state folder."""
        self.stop()
        facts = remembered.load(self.layout)
        if facts is None:
            return
        self._postgres(facts).remove()
        if facts.socket is not None and not Path(facts.socket).is_relative_to(self.layout.root):
            shutil.rmtree(Path(facts.socket).parent, ignore_errors=True)
        shutil.rmtree(self.layout.root)

    def kill(self, name: str) -> int:
        """Kill a program as a power cut would (SIGKILL); it is started again by the supervisor. Returns the pid that was killed."""
        found = self.signal(name, signal.SIGKILL)
        processes.wait_gone(found, 10.0)
        return found.pid

    def signal(self, name: str, signal_number: int) -> ProcessId:
        """Send a program a signal (SIGSTOP and SIGCONT freeze and thaw it). One that is just being started again is waited for."""
        deadline = time.monotonic() + RESTART_SECONDS
        while (found := self.process(name)) is None or not processes.send(found, signal_number):
            if not self.is_up() or time.monotonic() > deadline:
                raise NotRunning(f"{name} does not run")
            time.sleep(readiness.POLL_SECONDS)
        return found

    def halt(self, name: str) -> None:
        """Stop one program and keep it stopped until :meth:`resume`."""
        self._running_supervisor().stop(name)

    def resume(self, name: str, *, wait: bool = True, seconds: float = READY_SECONDS) -> None:
        """Start one program again, and wait until it is ready."""
        self._running_supervisor().start(name)
        if wait:
            self.wait_ready(name, seconds=seconds)

    def restart(self, name: str, *, seconds: float = READY_SECONDS) -> None:
        """Stop one program gently, start it again, and wait until it is ready."""
        self.halt(name)
        self.resume(name, seconds=seconds)

    def wait_ready(self, *names: str, seconds: float = READY_SECONDS) -> None:
        """Wait until these programs (default: all) are ready. Raises :class:`gpuyard_local.readiness.NotReady`."""
        known = self.health_ports()
        wanted = {name: known[name] for name in names or known if name in known}
        if "nats" in names:
            self._await("nats", lambda: nats.is_answering(self.facts.ports["nats"]), seconds)
        readiness.wait(wanted, seconds=seconds)

    def reload_bus(self, facts: Facts) -> None:
        """Write the bus's configuration with everybody in it, and have a running server take it up."""
        self._write_bus_config(facts)
        if self.process("nats") is not None:
            self.signal("nats", signal.SIGHUP)

    # Within

    def _supervisor(self, facts: Facts) -> Supervisor:
        return Supervisor(self.layout, socket_path(self.layout, facts.socket))

    def _launch(self, facts: Facts) -> None:
        supervisor = self._supervisor(facts)
        supervisor.launch(self._programs(facts))
        who = supervisor.process()
        if who is not None:
            processes.record(self.layout.record(leftovers.SUPERVISOR), who)

    def _running_supervisor(self) -> Supervisor:
        supervisor = self._supervisor(self.facts)
        if not supervisor.is_running():
            raise NotRunning(f"the stack in {self.layout.root} is not up; `gpuyard-local up` starts it")
        return supervisor

    def _postgres(self, facts: Facts) -> Postgres:
        password = database.password_of(self.layout, database.SUPERUSER)
        return Postgres(self.layout.data / "postgres", password=password, port=facts.ports["postgres"])

    def _programs(self, facts: Facts) -> list[Program]:
        made = services.programs(self.layout, facts, self._postgres(facts))
        return [replace(program, environment={**program.environment, **self._settings.get(program.name, {})}) for program in made]

    @contextmanager
    def _alone(self) -> Generator[None, None, None]:
        """One start or stop at a time; the kernel lets go when we die."""
        with (self.layout.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _settle_facts(self) -> Facts:
        kept = remembered.load(self.layout) or Facts()
        nodes = dict(self._nodes)
        if self._own_gpus and count_gpus():
            nodes[services.OWN_NODE] = services.OWN_PROFILE
        asked = {} if self._api_port is None else {"api": self._api_port}
        chosen = ports.choose(services.port_names(nodes), place=self.layout.root, kept=kept.ports, asked=asked, say=self._say)
        facts = replace(kept, ports=chosen, nodes=nodes, socket=str(socket_path(self.layout, kept.socket)))
        facts = replace(facts, postgres_data=str(self._postgres(facts).data_dir))
        remembered.save(self.layout, facts)
        database.write_dsns(self.layout, chosen["postgres"])
        self._write_bus_config(facts)
        return facts

    def _write_bus_config(self, facts: Facts) -> None:
        listen = f"{ports.LOOPBACK}:{facts.ports['nats']}"
        bus_config.write_config(self.layout, listen=listen, store=self.layout.data / "nats", nodes=facts.nodes, tenants=facts.bus_tenants)

    def _bring_up(self, facts: Facts, seconds: float, say: Callable[[str], None]) -> None:
        """Start what does not run yet, in order, and wait."""
        supervisor = self._supervisor(facts)
        known = supervisor.states()  # what a running supervisor was started with
        is_fresh = known["postgres"][0] != "RUNNING"
        supervisor.start("nats")
        with ThreadPoolExecutor(1) as worker:
            made = worker.submit(self._postgres(facts).prepare)  # a first start makes the database's folder meanwhile
            self._await("nats", lambda: nats.is_answering(facts.ports["nats"]), seconds)
            if is_fresh:
                self._bootstrap(facts)
                say("the bus is ready, streams and consumers are made")
            made.result()
        supervisor.start("postgres")
        if is_fresh:
            self._prepare_database(facts, seconds)
            say("the database is ready, roles and schemas are made")
        for name in known:
            supervisor.start(name)
        readiness.wait(self.health_ports(), seconds=seconds, say=say)
        services.write_client(self.layout, facts)

    def _bootstrap(self, facts: Facts) -> None:
        from gpuyard_local.operating import make_streams

        asyncio.run(make_streams(services.nats_url(facts), bus_config.password_of(self.layout, bus_config.OPERATOR), facts.nodes))

    def _prepare_database(self, facts: Facts, seconds: float) -> None:
        import asyncpg

        deadline = time.monotonic() + seconds
        while True:
            try:
                asyncio.run(database.prepare(self.layout, facts.ports["postgres"]))
                return
            except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError) as error:
                if time.monotonic() > deadline:
                    raise readiness.NotReady({"postgres": type(error).__name__}) from None
                time.sleep(readiness.POLL_SECONDS)

    def _await(self, name: str, is_ready: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_ready():
            if time.monotonic() > deadline:
                raise readiness.NotReady({name: f"does not answer; see {self.layout.log(name)}"})
            time.sleep(readiness.POLL_SECONDS)

    def _stop_programs(self, supervisor: Supervisor) -> None:
        """Agents and services together, then what they stand on."""
        known = supervisor.states()
        for group in (set(known) - set(leftovers.LAST), set(leftovers.LAST) & set(known)):
            for name in sorted(group):
                supervisor.stop(name, wait=False)
            supervisor.wait_stopped(group)

    def _end_leftovers(self) -> list[str]:
        ended = leftovers.end(self.layout)
        if ended:
            self._say(f"ended what an earlier run left without its supervisor: {', '.join(ended)}")
        return ended
