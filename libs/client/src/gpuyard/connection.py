"""Where the api is and with which token: found once, in a fixed order.

1. what the caller gives; 2. ``GPUYARD_URL`` and ``GPUYARD_TOKEN`` (or ``GPUYARD_TOKEN_FILE``); 3. ``.gpuyard/client.json`` of a local
stack, in this folder or one above it; 4. what ``gpuyard login`` kept in the user's configuration folder. A token stays in its own file,
readable by its owner only; it is read when it is used and shown nowhere.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.errors import NotConfigured

LOCAL_FILE = Path(".gpuyard") / "client.json"


@dataclass(frozen=True, slots=True)
class Connection:
    """The api's address, the token, and where both were found.

    `services`: health addresses of a local stack's processes by name. `tenant`: for whom an operator asks (``GPUYARD_TENANT``).
    """

    url: str
    token: str = field(repr=False)
    found_in: str
    services: Mapping[str, str] = field(default_factory=dict[str, str])
    tenant: str | None = None


def find(
    url: str | None = None, token: str | None = None, *, start: Path | None = None, env: Mapping[str, str] | None = None
) -> Connection:
    """The connection to use. Raises :class:`NotConfigured` that says what was looked for, and where."""
    given = os.environ if env is None else env
    url = url or given.get("GPUYARD_URL") or None
    token = token or _token_of(given)
    tenant = given.get("GPUYARD_TENANT") or None
    if url is not None:
        kept = None if token is not None else _kept_for(url, start or _here(), given)
        where = "the arguments and environment" if kept is None else kept.found_in
        return Connection(_clean(url), token or (kept.token if kept else ""), where, tenant=tenant)
    for path in _files(start or _here(), given):
        if path.is_file():
            found = _read(path)
            where = found.found_in + (", with another token" if token else "")
            return Connection(found.url, token or found.token, where, found.services, tenant)
    raise NotConfigured(
        "no gpuyard api is known: GPUYARD_URL is not set, no .gpuyard/client.json lies here or above, and nobody has logged in",
        fix="start a local stack with `make up`, or log in with `gpuyard login URL`",
    )


def config_file(env: Mapping[str, str] | None = None) -> Path:
    """Where ``gpuyard login`` keeps what it was told (``XDG_CONFIG_HOME``, else ``~/.config``)."""
    given = os.environ if env is None else env
    base = given.get("XDG_CONFIG_HOME", "")
    home = Path(base) if base.startswith("/") else Path(given.get("HOME") or "/nonexistent") / ".config"
    return home / "gpuyard" / "client.json"


def keep(url: str, token: str, env: Mapping[str, str] | None = None) -> Path:
    """Remember a login; the files are readable by their owner only. Returns where. Raises OSError where it cannot be written."""
    path = config_file(env)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    token_file = path.with_name("token")
    write_private(token_file, token + "\n")
    write_private(path, json.dumps({"url": _clean(url), "token_file": token_file.name}) + "\n")
    return path


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all, and never readable for others in between."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        os.fchmod(out.fileno(), 0o600)
        out.write(text)
    fresh.replace(path)


def _here() -> Path:
    try:
        return Path.cwd()
    except OSError:  # the folder was removed under us
        return Path("/")


def _files(start: Path, env: Mapping[str, str]) -> list[Path]:
    return [*(folder / LOCAL_FILE for folder in (start, *start.parents)), config_file(env)]


def _kept_for(url: str, start: Path, env: Mapping[str, str]) -> Connection | None:
    """A token is sent only to the address that it was kept for."""
    for path in _files(start, env):
        if path.is_file() and (found := _read(path)).url == _clean(url):
            return found
    return None


def _token_of(env: Mapping[str, str]) -> str | None:
    if env.get("GPUYARD_TOKEN"):
        return env["GPUYARD_TOKEN"].strip()
    return _read_token(Path(env["GPUYARD_TOKEN_FILE"])) if env.get("GPUYARD_TOKEN_FILE") else None


def _read(path: Path) -> Connection:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        url = content["url"]
        token_file = content.get("token_file")
        services = {str(name): str(where) for name, where in dict(content.get("services") or {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotConfigured(f"{path} cannot be read: {type(error).__name__}", fix="log in again, or start the local stack again") from None
    token = _read_token(path.parent / str(token_file)) if token_file else ""
    return Connection(_clean(str(url)), token, str(path), services)


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise NotConfigured(
            f"the token file {path} cannot be read: {reason}", fix="give a token with GPUYARD_TOKEN, or log in again"
        ) from None


def _clean(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise NotConfigured(f"{url!r} is no address of an api", fix="write it with its scheme, like http://127.0.0.1:8080")
    return url.rstrip("/")
