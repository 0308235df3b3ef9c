"""The nats-server's configuration: JetStream, one user for each program with the least rights.

A user's rights come from :mod:`gpuyard_contracts.permissions`. Passwords are long and random, so their bcrypt hashes may be cheap: what
makes guessing hopeless is the password, and every reconnect of every service pays for the hash.
"""

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import bcrypt
from gpuyard_contracts import permissions
from gpuyard_contracts.permissions import Permissions
from gpuyard_contracts.topology import SERVICES

from gpuyard_local.layout import Layout
from gpuyard_local.private import ensure, write

BCRYPT_ROUNDS = 4
OPERATOR = "operator"


def users(nodes: Iterable[str], tenants: Iterable[str]) -> dict[str, Permissions]:
    """Every user of the bus, by name."""
    found = {OPERATOR: permissions.of_operator()}
    found |= {service: permissions.of_service(service) for service in SERVICES}
    found |= {f"node-{node}": permissions.of_node(node) for node in nodes}
    return found | {f"tenant-{tenant}": permissions.of_tenant(tenant) for tenant in tenants}


def password_of(layout: Layout, user: str) -> str:
    """The user's password; made at first use, and kept."""
    return ensure(layout.password(f"nats-{user}"), lambda: secrets.token_urlsafe(32)).strip()


def hash_of(layout: Layout, user: str) -> str:
    """The hash that the server compares with. Kept as it is: a new one for the same password would throw the user's connections out."""
    password = password_of(layout, user).encode()
    path = layout.secrets / f"nats-{user}.bcrypt"
    kept = ensure(path, lambda: bcrypt.hashpw(password, bcrypt.gensalt(BCRYPT_ROUNDS)).decode()).strip()
    if not bcrypt.checkpw(password, kept.encode()):  # the password file was replaced
        path.unlink()
        return hash_of(layout, user)
    return kept


def text(*, listen: str, store: Path, hashes: Mapping[str, str], given: Mapping[str, Permissions]) -> str:
    """The whole configuration (the server reads JSON). `listen`: host and port."""
    config = {
        "server_name": "gpuyard",
        "listen": listen,
        "max_payload": 1_048_576,
        "max_connections": 4096,
        "write_deadline": "10s",
        "lame_duck_duration": "30s",
        "jetstream": {"store_dir": str(store), "max_file_store": 64 * 2**30, "max_memory_store": 2**30},
        "authorization": {"timeout": 5, "users": [_user(name, hashes[name], found) for name, found in given.items()]},
    }
    return json.dumps(config, indent=1) + "\n"


def _user(name: str, hashed: str, found: Permissions) -> dict[str, Any]:
    rights: dict[str, Any] = {"publish": {"allow": list(found.publish)}, "subscribe": {"allow": list(found.subscribe)}}
    if found.may_reply:
        rights["allow_responses"] = {"max": 1, "expires": "1m"}
    return {"user": name, "password": hashed, "permissions": rights}


def write_config(layout: Layout, *, listen: str, store: Path, nodes: Iterable[str], tenants: Iterable[str]) -> Path:
    """Write the configuration with a user for everybody, making passwords that are missing. Returns its path."""
    given = users(nodes, tenants)
    hashes = {name: hash_of(layout, name) for name in given}
    path = layout.config / "nats.conf"
    write(path, text(listen=listen, store=store, hashes=hashes, given=given))
    return path


def write_credentials(layout: Layout, user: str, *, url: str) -> Path:
    """One file with all that a program needs to connect as this user. Returns its path."""
    prefix = permissions.inbox_of(user) if user != OPERATOR else permissions.of_operator().inbox
    path = layout.credentials(f"nats-{user}")
    write(path, json.dumps({"url": url, "user": user, "password": password_of(layout, user), "inbox_prefix": prefix}, indent=1) + "\n")
    return path
