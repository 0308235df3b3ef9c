"""The first operator's token, in a file that only its owner can read.

It is drawn at the first start, before any operator exists. The file is there, whole, before its digest is committed: a crash in between
leaves a file that the next start takes as it is. Nothing else ever holds the token, no log either.
"""

import os
import secrets
import stat
from pathlib import Path

from gpuyard_api.domain.secret import SECRET_BYTES, is_token, token_of


class Exposed(Exception):
    """The file of the operator's token can be read or written by others."""


def first_token(path: Path) -> str:
    """The token in the file; drawn and written now if there is none. Raises OSError, and Exposed where the file is not private."""
    if (found := _read(path)) is not None:
        return found
    token = new_token()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.fchmod(handle, 0o600)
        os.write(handle, f"{token}\n".encode())
        os.fsync(handle)
    finally:
        os.close(handle)
    draft.replace(path)
    return token


def new_token() -> str:
    """A new token."""
    return token_of(secrets.token_bytes(SECRET_BYTES))


def _read(path: Path) -> str | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with os.fdopen(handle) as file:
        if stat.S_IMODE(os.fstat(handle).st_mode) & 0o077:
            raise Exposed(f"{path} can be read by others: its token may be known. Remove the file, then start again for a new one.")
        text = file.read(200).strip()
    return text if is_token(text) else None
