"""What lies where in a stack's state folder. The folder is its owner's alone (0700), secrets are files of 0600 in it."""

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

SOCKET_PATH_BYTES = 107
"""A UNIX socket's path may have this many bytes (sun_path, with its final NUL)."""

_BESIDES_SOCKET = len(".4194304")
"""supervisord first binds the path with its pid behind it."""


class NotOurs(Exception):
    """The state folder belongs to somebody else, or is no state folder."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths under one state folder, all absolute."""

    root: Path

    @property
    def facts(self) -> Path:
        """What was chosen at the first start: ports, folders elsewhere."""
        return self.root / "stack.json"

    @property
    def client(self) -> Path:
        """What the `gpuyard` command reads to find this stack."""
        return self.root / "client.json"

    @property
    def secrets(self) -> Path:
        """Passwords and tokens, one file each."""
        return self.root / "secrets"

    @property
    def config(self) -> Path:
        """Generated configuration; written anew at each start."""
        return self.root / "config"

    @property
    def logs(self) -> Path:
        """One log for each program."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """Who runs now."""
        return self.root / "run"

    @property
    def data(self) -> Path:
        """The bus's streams, and the database where its user can reach it."""
        return self.root / "data"

    @property
    def admin_token(self) -> Path:
        """The token of the installation's administrator."""
        return self.root / "admin.token"

    def password(self, user: str) -> Path:
        """The password of one user of the bus or the database (``nats-api``, ``postgres-api``)."""
        return self.secrets / f"{user}.password"

    def credentials(self, user: str) -> Path:
        """All that a program of this bus user needs to connect."""
        return self.secrets / f"{user}.json"

    def script(self, program: str) -> Path:
        """The script that becomes the program."""
        return self.config / f"{program}.sh"

    def record(self, program: str) -> Path:
        """Who the program is now: see :mod:`gpuyard_local.processes`."""
        return self.run / f"{program}.stat"

    def log(self, program: str) -> Path:
        """What the program printed."""
        return self.logs / f"{program}.log"

    def node(self, node_id: str) -> Path:
        """A node agent's own folder: journal, working and checkpoint folders."""
        return self.root / "nodes" / node_id

    def make(self) -> None:
        """Make the folders. Raises :class:`NotOurs` for another user's folder or one that holds other things."""
        if self.root.exists() and not self.root.is_dir():
            raise NotOurs(f"{self.root} is not a folder")
        if self.root.is_dir():
            found = self.root.stat()
            if found.st_uid != os.geteuid():
                raise NotOurs(f"{self.root} belongs to another user")
            if not self.facts.exists() and any(self.root.iterdir()):
                raise NotOurs(f"{self.root} holds something else than a gpuyard stack; name another folder with --state")
            if stat.S_IMODE(found.st_mode) != 0o700:
                self.root.chmod(0o700)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.secrets, self.config, self.logs, self.run, self.data, self.root / "nodes"):
            folder.mkdir(mode=0o700, exist_ok=True)


def socket_path(layout: Layout, kept: str | None = None) -> Path:
    """Where supervisord listens: in the state folder, or in a short private one where that path would be too long for a socket."""
    path = layout.run / "supervisor.sock"
    if len(os.fsencode(path)) + _BESIDES_SOCKET <= SOCKET_PATH_BYTES:
        return path
    if kept is not None and _is_private(Path(kept).parent):
        return Path(kept)
    return Path(tempfile.mkdtemp(prefix="gpuyard-", dir="/tmp")) / "s.sock"


def _is_private(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700
