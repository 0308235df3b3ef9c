"""supervisord, which restarts what dies: its configuration, and the few things we ask of it over its socket.

Programs do not start by themselves: :class:`gpuyard_local.stack.Stack` starts them in order. Once up, one that dies is started again, with
growing pauses while it keeps dying, and is never given up. Logs turn over at 10 MB.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

from gpuyard_local.layout import Layout
from gpuyard_local.private import write
from gpuyard_local.processes import ProcessId, identify
from gpuyard_local.programs import Program, write_script

LOG_BYTES = "10MB"
LOG_BACKUPS = 3

_ALREADY_STARTED, _NOT_RUNNING, _NO_FILE = 60, 70, 20
"""Faults of supervisor's XML-RPC (supervisor.xmlrpc.Faults) that mean: as wanted."""

_DOWN = frozenset({"STOPPED", "EXITED", "FATAL", "UNKNOWN"})


class SupervisorAway(Exception):
    """supervisord does not answer."""


def config_text(programs: Iterable[Program], layout: Layout, socket: Path) -> str:
    """supervisord's configuration. Percent signs are doubled: the file is expanded."""
    user = ["user=root"] if os.geteuid() == 0 else []
    head = [
        "[unix_http_server]", f"file={_safe(socket)}", "chmod=0700", "",
        "[supervisord]", f"logfile={_safe(layout.log('supervisord'))}", f"logfile_maxbytes={LOG_BYTES}", f"logfile_backups={LOG_BACKUPS}",
        f"pidfile={_safe(layout.run / 'supervisord.pid')}", f"childlogdir={_safe(layout.logs)}", "umask=077", "minfds=4096", *user, "",
        "[rpcinterface:supervisor]", "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface", "",
    ]  # fmt: skip
    return "\n".join(head + [line for program in programs for line in _section(program, layout)])


def _section(program: Program, layout: Layout) -> list[str]:
    return [
        f"[program:{program.name}]", f'command=/bin/sh "{_safe(layout.script(program.name))}"', "directory=/",
        "autostart=false", "autorestart=true", "startsecs=1", "startretries=1000000",
        f"stopsignal={program.stop_signal}", f"stopwaitsecs={program.stop_seconds}",
        "redirect_stderr=true", f"stdout_logfile={_safe(layout.log(program.name))}",
        f"stdout_logfile_maxbytes={LOG_BYTES}", f"stdout_logfile_backups={LOG_BACKUPS}", "",
    ]  # fmt: skip


def _safe(path: Path) -> str:
    text = str(path)
    if any(character in text for character in '";\n\r'):
        raise ValueError(f"the path {text!r} cannot stand in supervisord's configuration; keep the state in another folder")
    return text.replace("%", "%%")


class Supervisor:
    """The supervisord of one stack."""

    def __init__(self, layout: Layout, socket: Path) -> None:
        self._layout = layout
        self._socket = socket

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self._layout.config / "supervisord.conf"

    def is_running(self) -> bool:
        """It answers on its socket."""
        try:
            self._call("getState")
        except SupervisorAway:
            return False
        return True

    def process(self) -> ProcessId | None:
        """Who it is, as it says itself; None where it does not answer."""
        try:
            return identify(int(self._call("getPID")))
        except SupervisorAway:
            return None

    def launch(self, programs: Iterable[Program], *, seconds: float = 15.0) -> None:
        """Write configuration and scripts, and start it in the background. Raises SupervisorAway with the end of its log."""
        found = list(programs)
        for program in found:
            write_script(program, self._layout)
        write(self.config, config_text(found, self._layout, self._socket))
        self._socket.unlink(missing_ok=True)
        started = subprocess.run(
            [sys.executable, "-m", "supervisor.supervisord", "-c", str(self.config)],
            env=environment(), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if started.returncode != 0:
            raise SupervisorAway(f"supervisord does not start: {(started.stderr or started.stdout).strip()[-500:]}")
        deadline = time.monotonic() + seconds
        while not self.is_running():
            if time.monotonic() > deadline:
                raise SupervisorAway(f"supervisord does not answer; see {self._layout.log('supervisord')}")
            time.sleep(0.02)

    def start(self, name: str) -> None:
        """Start a program, without waiting for it."""
        self._call("startProcess", name, False, good=(_ALREADY_STARTED,))

    def stop(self, name: str, *, wait: bool = True) -> None:
        """Stop a program and keep it stopped."""
        self._call("stopProcess", name, wait, good=(_NOT_RUNNING,))

    def wait_stopped(self, names: Iterable[str], *, seconds: float = 40.0) -> None:
        """Wait until none of these runs. supervisord itself kills what takes longer than its `stop_seconds`. Raises SupervisorAway."""
        wanted = set(names)
        deadline = time.monotonic() + seconds
        while left := sorted(name for name, (state, _) in self.states().items() if name in wanted and state not in _DOWN):
            if time.monotonic() > deadline:
                raise SupervisorAway(f"{', '.join(left)} cannot be stopped")
            time.sleep(0.05)

    def states(self) -> dict[str, tuple[str, int]]:
        """Every program's state (``RUNNING``, ``BACKOFF``, …) and pid (0 for none)."""
        rows: Any = self._call("getAllProcessInfo")
        return {str(row["name"]): (str(row["statename"]), int(row["pid"])) for row in rows}

    def shut_down(self) -> None:
        """Stop all programs and end."""
        self._call("shutdown")

    def _call(self, method: str, *arguments: Any, good: tuple[int, ...] = ()) -> Any:
        from supervisor.xmlrpc import SupervisorTransport

        proxy = ServerProxy("http://127.0.0.1", transport=SupervisorTransport(None, None, f"unix://{self._socket}"))
        try:
            return getattr(proxy.supervisor, method)(*arguments)
        except Fault as fault:
            if fault.faultCode in good:
                return None
            raise SupervisorAway(f"supervisord refuses {method}{arguments}: {fault.faultString}") from None
        except (OSError, HTTPException) as error:
            raise SupervisorAway(f"supervisord does not answer: {error}") from None
        finally:
            proxy("close")()


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """What programs inherit: nothing of the caller's but PATH, the temporary folder and a UTF-8 locale."""
    ours = os.environ if given is None else given
    kept = {name: ours[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in ours}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/", "PYTHONUNBUFFERED": "1", **kept}
