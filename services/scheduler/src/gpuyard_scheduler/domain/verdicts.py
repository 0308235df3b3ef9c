"""Why a line waits, as one of the closed list of reasons with numbers for people. The reasons exclude each other."""

from gpuyard_scheduler.domain import words
from gpuyard_scheduler.domain.ask import has_labels, portion
from gpuyard_scheduler.domain.capacity import ever_fits, most_ranks
from gpuyard_scheduler.domain.fleet import Fleet, why_not_pool
from gpuyard_scheduler.domain.model import Ask, Kind, Verdict, Waits
from gpuyard_scheduler.domain.pool import Pool

_STAGES: tuple[tuple[str, Waits], ...] = (
    ("model", "no-fit-model"),
    ("memory", "no-fit-memory"),
    ("sharing", "no-fit-place"),
    ("zone", "no-fit-place"),
)
"""The further a card comes, the nearer it is to a fit; the furthest one gives the reason."""


def for_all(fleet: Fleet, is_tenant_known: bool, *, is_blind: bool) -> Verdict | None:
    """What keeps every job of a tenant waiting at once."""
    if is_blind:
        return Verdict("fleet-blind", "so many nodes fell silent at once that nothing is moved until they are heard again")
    if fleet.is_empty:
        return Verdict("fleet-empty", "no GPU is known yet")
    if not is_tenant_known:
        return Verdict("tenant-unknown", "nothing is known yet of the tenant's quota")
    return None


def no_kind(ask: Ask, fleet: Fleet) -> Verdict:
    """No card of the fleet is of a kind that the ask takes."""
    stages = [name for name, _ in _STAGES]
    failed = max((why_not_pool(ask, pool) or "zone" for pool in fleet.pools.values()), key=stages.index)
    reason = dict(_STAGES)[failed]
    if failed == "model":
        has = sorted({pool.kind.model for pool in fleet.pools.values()})
        return Verdict(reason, f"asked for {' or '.join(ask.models)}; the fleet has {_few(has)}")
    if failed == "memory":
        sizes = sorted({pool.kind.memory_mib for pool in fleet.pools.values() if why_not_pool(ask, pool) == "memory"})
        return Verdict(reason, f"asked for {_range(ask)}; such cards have {_few([words.memory(size) for size in sizes])}")
    if failed == "sharing":
        return Verdict(reason, f"no such card offers {'MIG ' + ask.mig_profile if ask.mig_profile else 'this way of sharing'}")
    zones = sorted({pool.zone for pool in fleet.pools.values()})
    return Verdict(reason, f"asked for zone {ask.zone}; such cards are not there; the fleet's zones are {_few(zones)}")


def no_room(ask: Ask, fleet: Fleet, kinds: tuple[tuple[Kind, tuple[Pool, ...]], ...], placed: int) -> Verdict:
    """Cards of such kinds exist, but not all of the job finds room now; `placed` ranks of it would."""
    pools = [pool for _, found in kinds for pool in found]
    if not any(pool.open_banks for pool in pools):
        return Verdict("no-fit-place", "every node with such cards is cordoned or silent")
    if not ever_fits(ask, fleet):
        return Verdict("no-fit-place", _never(ask, kinds))
    if ask.ranks > 1 and placed:
        return Verdict("gang-incomplete", f"{placed} of {ask.ranks} ranks would find room now; a gang starts whole or not at all")
    if ask.is_share:
        milli, mib = portion(ask, kinds[0][0])
        part = f"{words.gpus(milli)} with {words.memory(mib)}"
        where = "a card; no card has" if ask.cards == 1 else f"each of {ask.cards} cards of a node; no node has"
        return Verdict("no-free-gpus", f"asked for {part} of {where} that free now")
    free = fleet.board.most_empty(ask, kinds)
    if free >= ask.cards:
        return Verdict(
            "no-free-gpus", f"where {words.cards(ask.cards)} would be free there is too little CPU or memory, or the job may not go there"
        )
    return Verdict("no-free-gpus", f"{words.cards(ask.cards)} asked for on one node; at most {free} are free on one now")


def behind_others(nodes: int) -> Verdict:
    """It would fit on nodes that are kept for a job that has waited longer."""
    return Verdict("behind-others", f"would fit on nodes ({nodes}) that are kept for a job before it, and might not end in time")


def preempting(victims: int, look_at_ms: int) -> Verdict:
    """Others have been told to make room for it."""
    return Verdict("preempting", f"{victims} {'job makes' if victims == 1 else 'jobs make'} room for it", look_at_ms)


def _never(ask: Ask, kinds: tuple[tuple[Kind, tuple[Pool, ...]], ...]) -> str:
    """Why such cards could not take it even if nothing ran, and how much they could."""
    by_kind = [[bank for pool in pools for bank in pool.banks.values()] for _, pools in kinds]
    labelled = [bank for banks in by_kind for bank in banks if has_labels(ask, bank.node.labels)]
    if not labelled:
        wanted = ", ".join(f"{key}={value}" for key, value in ask.labels)
        return f"asked for a node with {wanted}; no node with such cards carries that"
    facts = [bank.node.facts for bank in labelled]
    cards, cpu, memory = max(len(bank.cards) for bank in labelled), max(f.cpu_milli for f in facts), max(f.memory_mib for f in facts)
    rank = f"{words.cards(ask.cards)} with {words.cpus(ask.cpu_milli)} and {words.memory(ask.memory_mib)} of memory"
    if ask.cards > cards:
        return f"asked for {words.cards(ask.cards)} on one node; no node has more than {cards} of such a kind" + _as_ranks(ask)
    if ask.cpu_milli > cpu:
        return f"asked for {words.cpus(ask.cpu_milli)}; no node with such cards has more than {words.cpus(cpu)}"
    if ask.memory_mib > memory:
        return f"asked for {words.memory(ask.memory_mib)} of memory; no node with such cards has more than {words.memory(memory)}"
    most = max(sum(most_ranks(ask, bank, is_open_only=False) for bank in banks) for banks in by_kind)
    if ask.ranks > 1 and most:
        return f"asked for {ask.ranks} ranks of {rank} each; {most} of them would fit, even if nothing ran"
    return f"asked for {rank}; no node has all of that, even if nothing ran"


def _as_ranks(ask: Ask) -> str:
    return "; ranks may lie on several nodes" if ask.ranks == 1 and ask.milli == 1000 else ""


def _range(ask: Ask) -> str:
    if ask.share_mib is not None and not ask.memory_min_mib:
        return f"{words.memory(ask.share_mib)} of a card"
    least = f"at least {words.memory(ask.memory_min_mib)}" if ask.memory_min_mib else ""
    most = f"at most {words.memory(ask.memory_max_mib)}" if ask.memory_max_mib is not None else ""
    return " and ".join(part for part in (least, most) if part) or "a share of a card"


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
