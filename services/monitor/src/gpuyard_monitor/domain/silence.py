"""When missing telemetry is a node's fault and when it is ours.

Not knowing is not failing: if much of the fleet falls silent at once, it is we who do not hear, and nothing is said of single nodes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta


def silent_nodes(heard: Mapping[str, datetime], now: datetime, limit: timedelta) -> list[str]:
    """Nodes without telemetry for longer than `limit`, in order; none if it is more than half of at least two.

    `heard`: for every node that should tell, when it last did (or since when we listen).
    """
    silent = sorted(node_id for node_id, at in heard.items() if now - at > limit)
    is_blind = len(silent) >= 2 and 2 * len(silent) > len(heard)
    return [] if is_blind else silent
