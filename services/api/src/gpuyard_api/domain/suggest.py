"""What a person probably meant: the nearest known word, by spelling or because other systems call it so."""

from collections.abc import Collection
from difflib import get_close_matches

_MEANT: dict[str, str] = {
    "high": "urgent critical highest",
    "normal": "medium default",
    "low": "lowest idle batch",
    "gold": "platinum premium",
    "gpu": "gpus accelerator accelerators",
    "command": "cmd run commands args entrypoint",
    "ranks": "nodes num_nodes tasks replicas",
    "cpu_milli": "cpu cpus",
    "memory_mib": "memory mem ram",
    "env": "envs environment variables",
    "max_seconds": "timeout max_duration time_limit",
    "retries": "retry max_retries",
    "node_labels": "node_selector",
    "grace_seconds": "grace",
    "milli": "fraction share",
    "models": "model type",
    "quota_gpu_milli": "quota gpu_quota",
    "is_suspended": "suspended",
}
SYNONYMS: dict[str, str] = {word: meant for meant, words in _MEANT.items() for word in words.split()}
"""What other systems' words are called here."""


def nearest(word: str, known: Collection[str]) -> str | None:
    """The known word that was probably meant, or None."""
    low = word.strip().lower()
    if (meant := SYNONYMS.get(low)) in known:
        return meant
    by_lower = {option.lower(): option for option in known}
    found = get_close_matches(low, by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None
