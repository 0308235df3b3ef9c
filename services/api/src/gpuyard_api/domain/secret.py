"""Tokens and digests. A secret is drawn once, shown once, and kept only as its SHA-256: it has 256 random bits, so no salt and no slow
hash is needed to make guessing hopeless.
"""

import hashlib
import re
from base64 import urlsafe_b64encode

PREFIX = "gpy_"
SECRET_BYTES = 32
_FORM = re.compile(r"gpy_[A-Za-z0-9_-]{43}")


def token_of(random: bytes) -> str:
    """The token that 32 random bytes make."""
    if len(random) != SECRET_BYTES:
        raise ValueError(f"a token is made of {SECRET_BYTES} random bytes")
    return PREFIX + urlsafe_b64encode(random).decode().rstrip("=")


def is_token(text: str) -> bool:
    """Whether the text has a token's form."""
    return _FORM.fullmatch(text) is not None


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def token_id_of(digest: str) -> str:
    """The public id of a token: it names it and gives nothing away."""
    return f"tok-{digest[:16]}"


def hint_of(token: str) -> str:
    """The first characters of a token."""
    return token[: len(PREFIX) + 4]


def request_id_of(idempotency_key: str) -> str:
    """The request id of a caller's key: a printable name for whatever the key is."""
    return f"key-{hashlib.sha256(idempotency_key.encode()).hexdigest()[:40]}"


def spec_digest(spec: str) -> str:
    """The digest that a repeated request is held to; of the spec as it was understood, so that spacing and order do not matter."""
    return hashlib.sha256(spec.encode("utf-8", "surrogatepass")).hexdigest()
