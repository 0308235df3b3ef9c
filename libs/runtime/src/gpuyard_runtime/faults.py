"""What can go wrong, by what is to be done about it. Two questions only: try again, or not. And how a process ends."""

EXIT_OK = 0
"""Stopped when asked to."""
EXIT_LOST = 69
"""Bus or database cannot be reached, for longer than we wait: start again."""
EXIT_BUG = 70
"""An error that nobody foresaw: see the log, start again."""
EXIT_FENCED = 75
"""Another process leads now: start again, to stand by."""
EXIT_FORBIDDEN = 77
"""The bus denies us a subject: the permissions do not fit this version."""
EXIT_CONFIG = 78
"""Settings, migrations or the bus's streams and durables are not as they must be: starting again does not help."""


class RuntimeFault(Exception):
    """The runtime cannot go on as asked."""


class RetryLater(RuntimeFault):
    """Not now: the same message is tried again in place, after growing pauses."""


class Poison(RuntimeFault):
    """This message can never be handled: it goes to the dead letters with its reason and blocks nobody."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Refused(RuntimeFault):
    """The one who was asked refused, with a reason."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Unavailable(RuntimeFault):
    """Bus or database cannot be reached now; nothing is lost and it is tried again."""


class Fenced(RuntimeFault):
    """Another process leads: this one must stop at once."""


class Fatal(RuntimeFault):
    """The process cannot go on and must exit with `code`."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.code = code
