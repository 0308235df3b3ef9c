"""From the header of a request to whose token it is. Tokens are in memory, by digest: a revoked one is refused from its commit on."""

from gpuyard_api import problems
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.secret import digest_of, is_token
from gpuyard_api.store import ApiStore


def principal_of(store: ApiStore, header: str | None) -> Principal:
    """The holder of the token in an ``Authorization`` header. Raises Problem 401, which never repeats what was sent."""
    if not header:
        raise problems.unauthenticated("Send a token: 'Authorization: Bearer gpy_…'.")
    scheme, _, given = header.partition(" ")
    token = given.strip()
    if scheme.lower() != "bearer" or not is_token(token):
        raise problems.unauthenticated("That is no token of this API: 'Authorization: Bearer gpy_…' is wanted.")
    known = store.tokens.get(digest_of(token))
    if known is None or known.revoked_at is not None:
        raise problems.unauthenticated("This token does not work: it is unknown or has been revoked.")
    return Principal(known)
