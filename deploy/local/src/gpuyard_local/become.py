"""``python -m gpuyard_local.become UID program argument …``: give up root for good, then become the program. Keeps pid and start time."""

import os
import sys


def main() -> None:
    """Drop to the user with this number, its groups too, and run the rest of the command line in its place."""
    uid, *command = sys.argv[1:]
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
    os.chdir("/")
    os.execv(command[0], command)  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
