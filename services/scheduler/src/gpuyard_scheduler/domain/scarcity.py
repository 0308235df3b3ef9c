"""Which kind of card a job takes that has a choice.

Jobs that insist on a model must find it free. So a job that takes several kinds goes first to those of which more is idle than will be
insisted on (with a margin), and among these to the smallest memory, so that large cards are left for those who need them.
"""

from collections.abc import Mapping
from itertools import groupby

from gpuyard_contracts.models import is_of_model

from gpuyard_scheduler.domain.fleet import Fleet, Kinds
from gpuyard_scheduler.domain.model import Ask, Kind

MARGIN_PERCENT = 250
_MILLION = 1_000_000
_STEP = 10_000
"""Shortages that differ by less than a hundredth of all demand count as equal."""


def in_turn(ask: Ask, fleet: Fleet, kinds: Kinds) -> list[tuple[Kind, ...]]:
    """The kinds in the order in which they are tried; those that are equal together."""
    if len(kinds) <= 1:
        return [(kind,) for kind, _ in kinds]
    if not ask.cards:
        return [tuple(kind for kind, _ in kinds)]  # no card is taken, so no kind becomes scarcer
    short = shortages(fleet) if fleet.board.scoring.outlook.insists else {}
    ordered = sorted((short.get(kind, 0) // _STEP, kind.memory_mib, kind) for kind, _ in kinds)
    return [tuple(kind for _, _, kind in group) for _, group in groupby(ordered, key=lambda item: item[:2])]


def shortages(fleet: Fleet) -> Mapping[Kind, int]:
    """For each kind by how much (millionths of all) what is insisted on, with its margin, is above what is idle."""
    idle: dict[Kind, int] = {}
    for pool in fleet.pools.values():
        idle[pool.kind] = idle.get(pool.kind, 0) + pool.idle_milli
    total = max(1, sum(idle.values()))
    wanted: dict[Kind, int] = {}
    for models, demand in fleet.board.scoring.outlook.insists:
        of_these = [kind for kind in idle if any(is_of_model(kind.model, model) for model in models)]
        for kind in of_these:
            wanted[kind] = wanted.get(kind, 0) + demand // len(of_these)
    return {kind: max(0, demand * MARGIN_PERCENT // 100 - idle[kind] * _MILLION // total) for kind, demand in wanted.items()}
