"""Whether an ask could ever be served by the fleet as it is built, whoever holds what now."""

from gpuyard_scheduler.domain.ask import has_labels, need, portion
from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.model import Ask, Kind, Tenant
from gpuyard_scheduler.domain.pool import Bank, Pool


def ever_fits(ask: Ask, fleet: Fleet, tenant: Tenant | None = None, *, is_open_only: bool = False) -> bool:
    """Whether all ranks would find room on an idle fleet (cordoned and silent nodes count too, unless `is_open_only`).

    With a `tenant`, only on kinds of card of which its whole quota allows enough.
    """
    barred = frozenset[Kind]() if tenant is None else frozenset(kind for kind, _ in fleet.kinds(ask) if _is_above(tenant, *need(ask, kind)))
    key = (ask, is_open_only, barred)
    found = fleet.ever.get(key)
    if found is None:
        if len(fleet.ever) > 100_000:
            fleet.ever.clear()
        found = any(kind not in barred and _hosts(ask, kind, pools, is_open_only) for kind, pools in fleet.kinds(ask))
        fleet.ever[key] = found
    return found


def settled(ask: Ask, fleet: Fleet, tenant: Tenant | None = None) -> Ask:
    """The ask without its wish to avoid nodes and cards, where no other open place could ever take it within the tenant's quota."""
    if (ask.avoid_nodes or ask.avoid_gpus) and not ever_fits(ask, fleet, tenant, is_open_only=True):
        return ask._replace(avoid_nodes=frozenset(), avoid_gpus=frozenset())
    return ask


def is_over_quota_for_ever(ask: Ask, tenant: Tenant, fleet: Fleet, *, is_settled: bool = True) -> bool:
    """Whether the tenant could not run it even if it ran nothing else, on any kind of card that serves the ask.

    Until the fleet has settled other kinds may be on their way, so only what holds for any kind counts.
    """
    kinds = [kind for kind, _ in fleet.kinds(ask)] if is_settled else []
    if not kinds:
        milli = 1 if ask.share_mib is not None and ask.milli == 1000 else ask.milli
        return tenant.quota_milli is not None and milli * ask.ranks * ask.cards > tenant.quota_milli
    return all(_is_above(tenant, *need(ask, kind)) for kind in kinds)


def _is_above(tenant: Tenant, milli: int, mib: int) -> bool:
    above = tenant.quota_milli is not None and milli > tenant.quota_milli
    return above or (tenant.quota_mib is not None and mib > tenant.quota_mib)


def _hosts(ask: Ask, kind: Kind, pools: tuple[Pool, ...], is_open_only: bool) -> bool:
    left = ask.ranks
    if portion(ask, kind)[0] > 1000:
        return False
    for pool in pools:
        for bank in pool.banks.values():
            left -= most_ranks(ask, bank, is_open_only)
            if left <= 0:
                return True
    return False


def most_ranks(ask: Ask, bank: Bank, is_open_only: bool) -> int:
    """How many ranks an idle bank takes; two of one job never share a card."""
    node = bank.node
    if (is_open_only and not node.is_open) or node.node_id in ask.avoid_nodes or not has_labels(ask, node.labels):
        return 0
    cards = sum(1 for card in bank.cards if card.uuid not in ask.avoid_gpus and (card.is_open or not is_open_only))
    if not is_open_only:  # a card that is lost may come back, as a silent node may; of what kind it was is not told
        cards += sum(1 for uuid in node.facts.lost_gpus if uuid not in node.cards and uuid not in ask.avoid_gpus)
    return min(cards // ask.cards, node.facts.cpu_milli // ask.cpu_milli, node.facts.memory_mib // ask.memory_mib)
