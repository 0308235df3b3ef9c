"""From what a person wrote to what must be found: one ask for each job, and what it takes of a card."""

from gpuyard_contracts.models import plain_model
from gpuyard_contracts.spec import JobSpec

from gpuyard_scheduler.domain.model import Ask, Kind, Slice


def ask_of(spec: JobSpec, avoid_nodes: frozenset[str] = frozenset(), avoid_gpus: frozenset[str] = frozenset()) -> Ask:
    """What must be found for this job."""
    gpu = spec.gpu
    return Ask(
        ranks=spec.ranks,
        cards=gpu.count,
        milli=gpu.milli,
        share_mib=gpu.share_memory_mib,
        models=tuple(sorted({plain_model(model) for model in gpu.models})),
        memory_min_mib=gpu.memory_mib or 0,
        memory_max_mib=gpu.memory_max_mib,
        mig_profile=gpu.mig_profile,
        cpu_milli=spec.cpu_milli,
        memory_mib=spec.memory_mib,
        zone=spec.zone,
        labels=tuple(sorted(spec.node_labels.items())),
        max_seconds=spec.max_seconds,
        avoid_nodes=avoid_nodes,
        avoid_gpus=avoid_gpus,
        is_spot=spec.spot,
    )


def portion(ask: Ask, kind: Kind) -> tuple[int, int]:
    """What the ask takes of one card of a kind: (milli, MiB).

    A share by one measure takes the same part of the other, rounded down but at least 1: floors of parts that sum to at most a whole sum to
    at most a whole. A result above the card's own size is an ask that no such card can serve.
    """
    if not ask.is_share:
        return 1000, kind.memory_mib
    if ask.share_mib is None:
        return ask.milli, max(1, kind.memory_mib * ask.milli // 1000)
    if ask.milli < 1000:
        return ask.milli, ask.share_mib
    return max(1, ask.share_mib * 1000 // max(kind.memory_mib, 1)), ask.share_mib


def need(ask: Ask, kind: Kind) -> tuple[int, int]:
    """What the whole job takes if it runs on cards of this kind: (milli-GPU, MiB of GPU memory), as quotas count it."""
    milli, mib = portion(ask, kind)
    cards = ask.ranks * ask.cards
    return milli * cards, mib * cards


def takes(ranks_slices: tuple[tuple[Slice, ...], ...]) -> tuple[int, int]:
    """What planned slices take together: (milli-GPU, MiB of GPU memory)."""
    milli = sum(part.milli for slices in ranks_slices for part in slices)
    mib = sum(part.memory_mib for slices in ranks_slices for part in slices)
    return milli, mib


def has_labels(ask: Ask, labels: dict[str, str]) -> bool:
    """Whether a node carries every label that is asked for."""
    return all(labels.get(key) == value for key, value in ask.labels)
