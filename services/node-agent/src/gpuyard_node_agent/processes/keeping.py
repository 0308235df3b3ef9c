"""The agent's end of the keeper (:mod:`gpuyard_node_agent.processes.keeper`): finds it, starts it where there is none, speaks with it.

Where the keeper dies although the agent lives, a new one is started and its survey is told: whoever listens then has the workloads adopted.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuyard_runtime.faults import EXIT_CONFIG, Fatal
from gpuyard_runtime.logs import log_of
from pydantic_core import from_json, to_json

import gpuyard_node_agent
from gpuyard_node_agent.domain.model import Born, Gone
from gpuyard_node_agent.ports import Absent, Failed, Launch, Seen, Survey
from gpuyard_node_agent.processes.keeper import SOCKET

SOURCE = Path(gpuyard_node_agent.__file__).parent.parent
_RUN = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from gpuyard_node_agent.processes.keeper import main; sys.exit(main())"
START_SECONDS = 15.0
LINE_LIMIT = 64 << 20
READ_BYTES = 1 << 20


def born_of(told: Mapping[str, Any]) -> Born:
    """A process that runs, from the keeper's words."""
    at = datetime.fromtimestamp(told["started_at"], UTC)
    return Born(told["key"], told["pid"], told["ticks"], told["started_ms"], at)


def gone_of(told: Mapping[str, Any]) -> Gone:
    """A process that is gone, from the keeper's words."""
    return Gone(told["key"], told["ended_ms"], told["code"], told["signal"], is_stopped=told["is_stopped"], is_fenced=told["is_fenced"])


def survey_of(told: Mapping[str, Any], boot_id: str) -> Survey:
    """What the keeper holds, from its words; a lease of another boot is none."""
    held = told["held"]
    return Survey(
        told["instance"],
        told["lease_ms"] if told["boot"] == boot_id else None,
        tuple(born_of(one) for one in held),
        tuple(gone_of(one) for one in held if "ended_ms" in one),
    )


class KeptProcesses:
    """A :class:`gpuyard_node_agent.ports.Runtime` on real processes. `folder` holds the keeper's socket and must be the agent's alone.

    `before` is called before anything is asked of the keeper: by then, what is asked must be written down.
    """

    def __init__(self, folder: Path, boot_id: str, before: Callable[[], None] = lambda: None) -> None:
        self.folder = folder
        self._before = before
        self._boot_id = boot_id
        self._hears: Callable[[Seen], None] = lambda seen: None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asks: list[bytes] = []
        self._log = log_of("keeping")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    async def open(self, hears: Callable[[Seen], None]) -> Survey:
        """Reach the keeper, starting one where none is. Raises Fatal where it cannot be started."""
        self._hears = hears
        reader, survey = await self._reach()
        self._reading = asyncio.create_task(self._read(reader))
        return survey

    async def _reach(self) -> tuple[asyncio.StreamReader, Survey]:
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        keeper = 0
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await self.connect()
                writer.write(b'{"do":"hello"}\n')
                told = from_json(await reader.readuntil(b"\n"))
                self._writer = writer
                return reader, survey_of(told, self._boot_id)
            if asyncio.get_running_loop().time() > deadline:
                raise Fatal(EXIT_CONFIG, f"the keeper does not start; see {self.folder}/keeper.log")
            if not keeper or _is_over(keeper):
                keeper = self._start()
            await asyncio.sleep(0.01)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """By way of the folder's descriptor: a socket's address has room for 107 bytes only."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await asyncio.open_unix_connection(f"/proc/self/fd/{fd}/{SOCKET}", limit=LINE_LIMIT)
        finally:
            os.close(fd)

    def _start(self) -> int:
        """A process of its own session with an empty environment, which outlives this one. Its pid."""
        log = str(self.folder / "keeper.log")
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", "-X", "utf8", "-c", _RUN, str(self.folder)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while True:
            try:
                rest = b""
                while data := await reader.read(READ_BYTES):
                    *lines, rest = (rest + data).split(b"\n")
                    for line in lines:
                        self._hear(from_json(line))
            except (OSError, ValueError) as error:
                self._log.error("keeper_unreadable", detail=str(error))
            self._log.error("keeper_gone")
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            reader, survey = await self._reach()
            self._tell(survey)

    def _hear(self, told: dict[str, Any]) -> None:
        what = told["is"]
        if what == "spawned":
            self._tell(born_of(told))
        elif what == "failed":
            self._tell(Failed(told["key"], told["errno"], told["text"]))
        elif what == "absent":
            self._tell(Absent(told["key"]))
        if what in ("spawned", "ended") and "ended_ms" in told:
            self._tell(gone_of(told))

    def _tell(self, seen: Seen) -> None:
        """One thing that goes wrong in the hearer must not make the agent deaf for everything after it."""
        try:
            self._hears(seen)
        except Exception:
            self._log.exception("unheard", seen=type(seen).__name__)

    def _ask(self, what: str, **told: Any) -> None:
        """Lost while the keeper is away: its next survey shows what is missing, and it is asked again then."""
        if not self._asks:
            asyncio.get_running_loop().call_soon(self._flush)
        self._asks.append(to_json({"do": what, **told}))

    def _flush(self) -> None:
        """One write for all that was asked in this turn of the loop."""
        self._before()
        asks, self._asks = self._asks, []
        if asks and self._writer is not None:
            self._writer.write(b"\n".join(asks) + b"\n")

    def launch(self, launch: Launch) -> None:
        """Start a process."""
        self._ask(
            "spawn",
            key=launch.key,
            path=launch.path,
            argv=launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            out=launch.out,
            err=launch.err,
            caps={launch.out: launch.cap_bytes, launch.err: launch.cap_bytes},
            uid=launch.uid,
            cgroup=launch.cgroup,
            cgroup_home=launch.cgroup_home,
        )

    def adopt(self, key: str, born: Born | None, caps: Mapping[str, int], uid: int | None) -> None:
        """Find a process that another keeper started."""
        known: dict[str, float] = {} if born is None else {"pid": born.pid, "ticks": born.ticks, "started_ms": born.started_ms}
        if born is not None:
            known["started_at"] = born.started_at.timestamp()
        self._ask("adopt", key=key, caps=caps, uid=uid, **known)

    def stop(self, key: str, grace_ms: int) -> None:
        """SIGTERM, after the grace SIGKILL."""
        self._ask("stop", key=key, grace_ms=grace_ms)

    def renew(self, until_ms: int) -> None:
        """The lease ends then."""
        self._ask("lease", until_ms=until_ms)

    def forget(self, key: str) -> None:
        """The end of this key is safe with us."""
        self._ask("forget", key=key)

    async def close(self) -> None:
        """Let the keeper alone; what runs goes on."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._writer is not None:
            self._flush()
            with contextlib.suppress(OSError):
                await self._writer.drain()
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None


def _is_over(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


async def end_everything(folder: Path, grace_ms: int = 5000) -> bool:
    """Tell the keeper of this folder to end all its workloads and go; False where there is none. For taking a whole stack down."""
    kept = KeptProcesses(folder, "")
    try:
        reader, writer = await kept.connect()
    except OSError:
        return False
    writer.write(to_json({"do": "end-all", "grace_ms": grace_ms}) + b"\n")
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            continue
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
