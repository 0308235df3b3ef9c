"""Whose a workload's folders are: its own user's while it lives, ours before and after, so that nobody else ever looks into them."""

import os
import stat

PRIVATE = 0o700


def give(folder: str, uid: int) -> None:
    """Make the folder and all in it this user's. Nothing that belongs to it may be running. Raises OSError.

    What an earlier attempt left belongs to another user. A file with several names stays whose it is: one of them may lead elsewhere.
    """
    found = os.stat(folder, follow_symlinks=False)  # noqa: PTH116 - text in, text out
    if found.st_uid != uid:
        _give_content(folder, uid)
        os.chown(folder, uid, uid, follow_symlinks=False)
    if stat.S_IMODE(found.st_mode) != PRIVATE:
        os.chmod(folder, PRIVATE)  # noqa: PTH101


def _give_content(folder: str, uid: int) -> None:
    for _, folders, files, fd in os.fwalk(folder):
        for name in (*folders, *files):
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1):
                os.chown(name, uid, uid, dir_fd=fd, follow_symlinks=False)


def take_back(folder: str) -> None:
    """The folder is ours again, and closed: whoever gets this user's number later sees nothing of it. Not there: nothing to do."""
    try:
        os.chown(folder, os.geteuid(), os.getegid(), follow_symlinks=False)
    except FileNotFoundError:
        return


def closed_to_others(path: str) -> str | None:
    """The first folder on the way to `path` (itself one) that other users may not pass; None where they may."""
    at = os.path.realpath(path)
    way = [at]
    while at != "/":
        at = os.path.dirname(at)  # noqa: PTH120
        way.append(at)
    return next((folder for folder in reversed(way) if not os.stat(folder).st_mode & stat.S_IXOTH), None)  # noqa: PTH116
