"""What a node runs, held against what it should run.

Events make things happen in milliseconds; a heartbeat, which lists everything that lives on the node, makes them right in seconds. What
runs without a live allocation is told to stop. What should run and is not listed may be an end that is still on its way to us, so
it is not judged by its absence: the node is *asked* with a stop order, and its answer comes behind everything that it said before, in
the same stream. Only a node that does not even answer that is overruled, after `vanish_after`.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuyard_placement.domain.model import Policy, RankKey, RankState


@dataclass(frozen=True, slots=True)
class Running:
    """One workload that a node lists."""

    allocation_id: str
    attempt: int
    rank: int
    tenant: str
    job_id: str
    is_stopping: bool = False

    @property
    def key(self) -> RankKey:
        """Allocation and rank."""
        return self.allocation_id, self.rank


@dataclass(frozen=True, slots=True)
class Miss:
    """A rank that should run and was not listed: last listed when, not listed since when, and since when its node is asked."""

    proof_at: datetime
    since: datetime
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """The last heartbeat of one agent, and what is odd about the node so far. In memory only: it is told anew each second."""

    node_id: str
    agent_id: str
    sequence: int
    at: datetime
    running: frozenset[RankKey] = frozenset()
    misses: Mapping[RankKey, Miss] = field(default_factory=dict[RankKey, Miss])
    strays: Mapping[RankKey, datetime] = field(default_factory=dict[RankKey, datetime])

    def proof_of(self, key: RankKey) -> datetime | None:
        """When the rank was last listed, as far as is remembered."""
        if key in self.running:
            return self.at
        miss = self.misses.get(key)
        return None if miss is None else miss.proof_at


@dataclass(frozen=True, slots=True)
class Expected:
    """One rank of a live allocation on the node. `proof_at`: the last sign of life before this heartbeat."""

    state: RankState
    proof_at: datetime


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done: stop `strays`, ask after `asked`, give up `vanished`; and what to remember until the next heartbeat."""

    heard: Heard
    strays: tuple[Running, ...] = ()
    asked: tuple[RankKey, ...] = ()
    vanished: tuple[RankKey, ...] = ()


def judge(
    now: Heard,
    before: Heard | None,
    running: Sequence[Running],
    unreported: Set[str],
    expected: Mapping[RankKey, Expected],
    just_released: Set[str],
    policy: Policy,
) -> Verdict:
    """Hold one heartbeat against the live allocations of its node.

    `now` carries who speaks and when; `unreported`: allocations whose end is still on its way; `just_released`: jobs whose allocation was
    released so lately that the list may be older.
    """
    known = before if before is not None and before.agent_id == now.agent_id else None
    told, strays = _strays(now.at, before, running, expected, just_released, policy)
    misses: dict[RankKey, Miss] = {}
    asked: list[RankKey] = []
    vanished: list[RankKey] = []
    for key, found in expected.items():
        if found.state.status != "started" or key in now.running or key[0] in unreported:
            continue
        if found.state.seen_at is not None and now.at - found.state.seen_at < policy.settle_after_start:
            continue
        miss = None if known is None else known.misses.get(key)
        if miss is None:
            misses[key] = Miss(found.proof_at, now.at)
        elif miss.asked_at is None:
            misses[key] = replace(miss, asked_at=now.at)
            asked.append(key)
        elif now.at - miss.asked_at < policy.vanish_after:
            misses[key] = miss
        else:
            vanished.append(key)
    return Verdict(replace(now, misses=misses, strays=strays), told, tuple(asked), tuple(vanished))


def _strays(
    at: datetime,
    before: Heard | None,
    running: Sequence[Running],
    expected: Mapping[RankKey, Expected],
    just_released: Set[str],
    policy: Policy,
) -> tuple[tuple[Running, ...], dict[RankKey, datetime]]:
    """What runs without a live allocation; told again only after a while, since a process needs a moment to die."""
    told: list[Running] = []
    when: dict[RankKey, datetime] = {}
    for found in running:
        should = expected.get(found.key)
        if should is not None and not should.state.is_gone:
            continue
        last = None if before is None else before.strays.get(found.key)
        if found.job_id in just_released and last is None:
            continue
        if last is None or at - last >= policy.ask_again:
            told.append(found)
            last = at
        when[found.key] = last
    return tuple(told), when
