"""NVML, in a child process that can be killed: a call into the driver may never come back, and the agent must.

This is the agent's side. It asks over a pipe and waits as long as its caller lets it; after a missed deadline the child is given up
(SIGTERM, since a kill in mid-call has wedged cards, then SIGKILL) and another is started. One that cannot even be killed hangs in the
kernel: then one more is tried, and after that nobody looks at the cards until the old ones are gone.
"""

import asyncio
import contextlib
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard_runtime.logs import log_of
from pydantic_core import from_json, to_json

from gpuyard_node_agent import mapping
from gpuyard_node_agent.domain.model import Card
from gpuyard_node_agent.ports import Hung, Reading, Xid

TERM_SECONDS = 1.0
KILL_SECONDS = 2.0
UNKILLABLE_LIMIT = 2
LINE_LIMIT = 8 << 20
CHILD = "gpuyard_node_agent.backends.nvml_child"
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "MOCK_NVML_STATE", "MOCK_NVML_EVENTS", "MOCK_NVML_ACTIONS")


class NvmlBackend:
    """A :class:`gpuyard_node_agent.ports.Backend` on a real driver."""

    name = "nvml"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        self._environment = {name: given[name] for name in PASSED_ON if name in given}
        self._child: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._xids: list[Xid] = []
        self._unkillable: list[asyncio.subprocess.Process] = []
        self._last_call: mmap.mmap | None = None
        self._log = log_of("nvml")

    @property
    def last_call(self) -> str:
        """What the child was calling last: where it hangs, if it hangs."""
        if self._last_call is None:
            return ""
        return self._last_call[:64].rstrip(b"\0").decode("ascii", "replace")

    async def _start(self) -> asyncio.subprocess.Process:
        if self._child is not None and self._child.returncode is None:
            return self._child
        self._unkillable = [child for child in self._unkillable if child.returncode is None]
        if len(self._unkillable) >= UNKILLABLE_LIMIT:
            raise Hung("two observers hang in the driver and cannot be killed; the node needs a reboot")
        fd = os.memfd_create("last-call")
        try:
            os.ftruncate(fd, mmap.PAGESIZE)
            self._last_call = mmap.mmap(fd, mmap.PAGESIZE)
            self._child = child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                CHILD,
                str(fd),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_LIMIT,
                env=self._environment,
                pass_fds=(fd,),
                start_new_session=True,
            )
        finally:
            os.close(fd)
        self._reading = asyncio.create_task(self._read(child))
        return child

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            while line := await child.stdout.readline():
                told = from_json(line)
                if "xid" in told:
                    self._xids.append(Xid(told["uuid"], told["xid"], told["place"], "NVML"))
                elif (waiting := self._answers.pop(told["number"], None)) is not None and not waiting.done():
                    waiting.set_result(told)
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(Hung("the observer has died"))
        self._answers.clear()

    async def _ask(self, what: str) -> Any:
        child = await self._start()
        assert child.stdin is not None
        self._number += 1
        number = self._number
        waiting = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            child.stdin.write(to_json({"number": number, "ask": what}) + b"\n")
            await child.stdin.drain()
            told = await waiting
        except (BrokenPipeError, ConnectionResetError):
            raise Hung("the observer has died") from None
        finally:
            self._answers.pop(number, None)
        if "problem" in told:
            raise Hung(told["problem"])
        return told

    async def discover(self) -> tuple[Card, ...]:
        """The cards that the driver shows. One that cannot be read does not hide the others."""
        told = await self._ask("cards")
        return mapping.cards_of(told["cards"])

    async def sample(self, busy: frozenset[str]) -> Reading:
        """Read every card once."""
        told = await self._ask("sample")
        return Reading(told["values"], frozenset(told["lost"]))

    def take_xids(self) -> Sequence[Xid]:
        """XIDs since the last call."""
        found, self._xids = self._xids, []
        return found

    async def restart(self) -> None:
        """Give the child up; the next question starts another."""
        child, self._child = self._child, None
        if child is None or child.returncode is not None:
            return
        self._log.warning("observer_given_up", pid=child.pid, last_call=self.last_call)
        for number, seconds in ((15, TERM_SECONDS), (9, KILL_SECONDS)):
            with contextlib.suppress(ProcessLookupError):
                child.send_signal(number)
            try:
                await asyncio.wait_for(asyncio.shield(child.wait()), seconds)
            except TimeoutError:
                continue
            break
        else:
            self._unkillable.append(child)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def close(self) -> None:
        """Let the cards go."""
        child, self._child = self._child, None
        if child is not None and child.returncode is None and child.stdin is not None:
            child.stdin.close()
            try:
                await asyncio.wait_for(child.wait(), TERM_SECONDS)
            except TimeoutError:
                self._child = child
                await self.restart()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


async def detect(*, seconds: float = 10.0) -> int:
    """How many cards NVML shows on this machine; 0 where it does not answer. For tools that decide what to start: never hangs."""
    backend = NvmlBackend()
    try:
        async with asyncio.timeout(seconds):
            return len(await backend.discover())
    except (Hung, TimeoutError, OSError, ValueError):
        await backend.restart()
        return 0
    finally:
        await backend.close()
