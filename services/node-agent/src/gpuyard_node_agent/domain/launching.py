"""What it means that a process could not be started."""

import errno

from gpuyard_node_agent.domain.admission import Refused

_NEVER = frozenset(
    {errno.ENOENT, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL}
    | {errno.EISDIR, errno.ELIBBAD}
)
"""The command itself is at fault: on no node could it be started."""


def refusal_of(number: int, text: str, program: str) -> Refused:
    """The refusal for a start that failed with this errno; 0 is the keeper's own: the lease was over."""
    if number == 0:
        return Refused("lease-over", text)
    if number in _NEVER:
        hint = "; is the interpreter in its first line there?" if number in (errno.ENOENT, errno.ENOEXEC) else ""
        return Refused("bad-command", f"{program!r} cannot be started: {text}{hint}", is_permanent=True)
    return Refused("no-room", f"{program!r} cannot be started just now: {text}")
