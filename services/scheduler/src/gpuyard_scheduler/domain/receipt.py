"""Why a job was placed where it was: what was known, what fitted, how the places compared, whose turn it was.

Receipts are worked out after the decision, by walking its starts over the same fleet in the same order; so deciding costs nothing for them,
and the same inputs give the same receipts, bit for bit. The snapshot is left as it was.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from gpuyard_scheduler.domain.fleet import Fleet
from gpuyard_scheduler.domain.mix import Outlook
from gpuyard_scheduler.domain.model import Kind, Start, Why
from gpuyard_scheduler.domain.policy import Policy
from gpuyard_scheduler.domain.scarcity import in_turn
from gpuyard_scheduler.domain.scoring import NO_PLACE
from gpuyard_scheduler.domain.snapshot import Snapshot

MOST_CHOSEN = 5
MOST_RUNNERS = 5
_NOMINAL_WEIGHT = 100


class Candidate(NamedTuple):
    """One node: the version of its state, its score (the smaller the better) and what each weighted term said, in micro-GPU."""

    node_id: str
    version: int
    score: int
    terms: dict[str, int]


class Turn(NamedTuple):
    """Why it was the job's turn; see :data:`gpuyard_scheduler.domain.order.Place`. `share_ppm` is as it counts for a weight of 100."""

    is_spare: bool
    rank: int
    urgency: int
    share_ppm: int
    aged_us: int


class Receipt(NamedTuple):
    """`fits` places had room for a rank and were not kept for others; `nodes` were taken, of which `chosen` are the first.

    `fleet`, `policy`, `outlook` and `inputs` are digests of what was known, of the rules, and of all that the start was decided from.
    """

    fits: int
    nodes: int
    kept_nodes: int
    chosen: tuple[Candidate, ...]
    runners_up: tuple[Candidate, ...]
    turn: Turn
    weights: dict[str, int]
    policy: str
    outlook: str
    fleet: str
    inputs: str


class Rules(NamedTuple):
    """What all receipts of one decision have in common."""

    weights: dict[str, int]
    policy: str
    outlook: str
    fleet: str


def receipts(starts: tuple[Start, ...], snapshot: Snapshot, policy: Policy) -> Iterator[Receipt]:
    """One for each start, in order. The iterator must be run to its end: until then the fleet holds what was walked over."""
    fleet = snapshot.fleet
    fleet.board.use(snapshot.scoring)
    rules = rules_of(snapshot, policy)
    chain = _digest([snapshot.now_ms, *rules[1:]])
    mark = fleet.mark()
    try:
        for start in starts:
            chain = _digest([chain, start.job_id, *_inputs(start.why)])
            yield _receipt(start, start.why, snapshot, rules, chain)
            for plan in start.ranks:
                fleet.take(plan)
    finally:
        fleet.undo(mark)


def rules_of(snapshot: Snapshot, policy: Policy) -> Rules:
    """The rules that are in force on this snapshot, and what is known, as digests."""
    weights = {name: weight for name, weight in asdict(snapshot.scoring.weights).items() if weight}
    return Rules(weights, _digest(asdict(policy)), digest_of(snapshot.scoring.outlook), f"{snapshot.fleet.known:032x}")


def digest_of(outlook: Outlook) -> str:
    """What is expected of the jobs to come, as a digest."""
    return _digest([part.tolist() if isinstance(part, np.ndarray) else part for part in outlook])


def _digest(content: object) -> str:
    return hashlib.blake2b(json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), digest_size=16).hexdigest()


def _inputs(why: Why) -> list[object]:
    ask = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in why.ask._asdict().items()}
    return [why.place, ask, why.kinds, sorted(why.barred)]


def _receipt(start: Start, why: Why, snapshot: Snapshot, rules: Rules, inputs: str) -> Receipt:
    fleet = snapshot.fleet
    view = fleet.board.view(why.ask, fleet.kinds(why.ask))
    score = np.where(fleet.board.shut(why.barred), NO_PLACE, view.score) if why.barred else view.score
    kind = fleet.nodes[start.ranks[0].node_id].cards[start.ranks[0].slices[0].gpu_uuid].bank.pool.kind if start.ranks[0].slices else None
    taken = list(dict.fromkeys(plan.node_id for plan in start.ranks))
    rows = view.rows_of(_rivals(why, fleet, kind))
    is_taken = np.isin(rows, [bank.row for node_id in taken for bank in fleet.nodes[node_id].banks])
    chosen = rows[is_taken & (score[rows] < NO_PLACE)][:MOST_CHOSEN]
    others = rows[~is_taken & (score[rows] < NO_PLACE)]
    runners = others[_least(score[others], MOST_RUNNERS)]
    terms = fleet.board.terms(why.ask, fleet.kinds(why.ask), [*chosen.tolist(), *runners.tolist()])
    told = [_candidate(fleet, row, int(score[row]), said) for row, said in zip([*chosen, *runners], terms, strict=True)]
    return Receipt(
        fits=int((score[view.rows_of(why.kinds)] < NO_PLACE).sum()),
        nodes=len(taken),
        kept_nodes=len(why.barred),
        chosen=tuple(told[: len(chosen)]),
        runners_up=tuple(told[len(chosen) :]),
        turn=_turn(why, fleet),
        weights=rules.weights,
        policy=rules.policy,
        outlook=rules.outlook,
        fleet=rules.fleet,
        inputs=inputs,
    )


def _rivals(why: Why, fleet: Fleet, kind: Kind | None) -> tuple[Kind, ...]:
    """The kinds of card that the chosen place was compared with."""
    pools = dict(fleet.kinds(why.ask))
    groups = in_turn(why.ask, fleet, tuple((each, pools[each]) for each in why.kinds))
    return next((group for group in groups if kind is None or kind in group), why.kinds)


def _least(scores: "np.ndarray[tuple[int], np.dtype[np.int32]]", most: int) -> "np.ndarray[tuple[int], np.dtype[np.intp]]":
    """Where the smallest scores are, in order; equal ones in the order of their places."""
    if len(scores) > most:
        edge = np.partition(scores, most - 1)[most - 1]
        near = np.flatnonzero(scores <= edge)
        return near[np.argsort(scores[near], kind="stable")][:most]
    return np.argsort(scores, kind="stable")


def _candidate(fleet: Fleet, row: int, score: int, terms: dict[str, int]) -> Candidate:
    node = fleet.board.banks[row].node
    return Candidate(node.node_id, node.facts.version, score, terms)


def _turn(why: Why, fleet: Fleet) -> Turn:
    is_spare, rank, urgency, share, aged_us, _ = why.place
    whole = max(fleet.total_milli, 1) * max(fleet.total_mib, 1)
    return Turn(is_spare, -rank, -urgency, share * _NOMINAL_WEIGHT // whole, aged_us)
