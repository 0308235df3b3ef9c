"""What a workload leaves behind: processes that are no longer in its group. On the standard library alone: the keeper stands on it."""

import os
from collections.abc import Container, Iterator

from gpuyard_node_agent.processes.held import Held
from gpuyard_node_agent.processes.procfs import all_pids, become_subreaper, has_children, mark_of, pids_after, stat_of, user_of


class Strays:
    """Finds them. One look at all processes serves everybody who is looked for in the same millisecond."""

    def __init__(self) -> None:
        self.looked_ms = 0
        self._everyone: list[int] = []
        self._is_subreaper = become_subreaper()

    def of(self, one: Held, leaders: Container[int], at: int, *, is_alone: bool) -> Iterator[int]:
        """The strays of a workload whose leader has ended. `leaders`: processes that are others', living ones; `is_alone`: there are none.

        A workload with a user of its own is known by it, whatever its processes do. Another one's are orphans that came to this process, by
        session, or by the mark in their environment.
        """
        is_ours = self._is_subreaper and one.is_child
        if is_ours and is_alone and not has_children():
            return
        if at != self.looked_ms:
            self._everyone, self.looked_ms = all_pids(), at
        for pid in pids_after(one.pid, self._everyone):
            if _is_of_user(pid, one.uid) if one.uid is not None else _is_orphan(pid, one, leaders, is_ours=is_ours):
                yield pid


def _is_of_user(pid: int, uid: int) -> bool:
    return user_of(pid) == uid


def _is_orphan(pid: int, one: Held, leaders: Container[int], *, is_ours: bool) -> bool:
    seen, me = stat_of(pid), os.getpid()
    if seen is None or seen.state == "Z" or pid in leaders or pid == me:
        return False
    return (seen.parent == me or not is_ours) and (seen.session == one.pid or mark_of(pid) == one.key)
