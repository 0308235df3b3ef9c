"""Why a job waits, where it was placed and why there, and what would become of one that is only thought of."""

from datetime import datetime

from pydantic import ConfigDict

from gpuyard_api.views.shapes import AT, JOB, NODE, Answer, example

_VERDICT = {"node_id": NODE, "is_fit": False, "constraint": "gpus", "detail": "1 of 8 cards free; 2 asked for"}
_WAITING = {
    "reason": "no-free-gpus",
    "detail": "2 cards asked for on one node; at most 1 is free on one now",
    "position": 3,
    "waiting": 17,
    "ahead": [],
    "verdicts": [_VERDICT],
    "groups": [{"nodes": 12, "node_ids": [NODE], "is_fit": False, "constraint": "gpus", "detail": "1 of 8 cards free; 2 asked for"}],
    "binding": {"constraint": "gpus", "nodes": 12, "of": 14},
    "suggestions": [{"field": "gpu", "was": "A100:2", "to": "A100:1", "effect": f"starts at once on {NODE}"}],
    "estimate": {
        "earliest": AT,
        "latest": AT,
        "assumption": "all that runs ends at its limit",
        "accuracy": {"number": 40, "median_ms": 9000, "p90_ms": 61000},
    },
}
_CANDIDATE = {"node_id": NODE, "version": 118, "score": 213333332, "terms": {"waste": -4000, "kept": 0, "apart": 0}}
_RECEIPT = {
    "fits": 9,
    "nodes": 1,
    "kept_nodes": 0,
    "chosen": [_CANDIDATE],
    "runners_up": [],
    "turn": {"is_spare": False, "rank": 1, "urgency": 0, "share_ppm": 12500, "aged_at_us": 1772366400000000},
    "weights": {"waste": 1000, "starved": 500, "kept": 10000, "apart": 1000, "step": 3000},
    "policy": "5c0f6f0e3c9d1a55",
    "outlook": "0a7d1c2b9e4f3a61",
    "fleet": "91f2c4d7a8b6e503",
    "inputs": "c3a1b2d4e5f60718",
}


class VerdictView(Answer):
    """Why one node cannot take one rank of the job now."""

    node_id: str
    is_fit: bool
    constraint: str
    detail: str


class VerdictGroupView(Answer):
    """All nodes of which the same can be said: how many, and the first of them by id."""

    nodes: int
    node_ids: list[str]
    is_fit: bool
    constraint: str
    detail: str


class BindingView(Answer):
    """The constraint that most nodes of the right kind fail on: `nodes` of the fleet's `of`."""

    constraint: str
    nodes: int
    of: int


class SuggestionView(Answer):
    """A change that was tried by a real decision on the present state, and with which the job starts now.

    `field` is the job file's (or ``quota``, ``stop``), `was` and `to` as one writes them there; an empty `to`: leave it out.
    """

    field: str
    was: str
    to: str
    effect: str


class AccuracyView(Answer):
    """How far the last `number` estimates were from what came. 0: not measured yet."""

    number: int
    median_ms: int
    p90_ms: int


class EstimateView(Answer):
    """When the job starts, between nobody and everybody ahead going first; None is not known, and `assumption` says why."""

    earliest: datetime | None
    latest: datetime | None
    assumption: str
    accuracy: AccuracyView


class CandidateView(Answer):
    """One node that was looked at, its score (the smaller the better) and what each weighted term said, in micro-GPU."""

    node_id: str
    version: int
    score: int
    terms: dict[str, int]


class TurnView(Answer):
    """Why it was the job's turn: compared from the first to the last."""

    is_spare: bool
    rank: int
    urgency: int
    share_ppm: int
    aged_at_us: int


class ReceiptView(Answer):
    """Why the job was placed where it was. The same inputs give the same receipt, bit for bit: `inputs` is their digest."""

    model_config = ConfigDict(frozen=True, json_schema_extra=example(**_RECEIPT))

    fits: int
    nodes: int
    kept_nodes: int
    chosen: list[CandidateView]
    runners_up: list[CandidateView]
    turn: TurnView
    weights: dict[str, int]
    policy: str
    outlook: str
    fleet: str
    inputs: str


class WaitingView(Answer):
    """Why a job waits and what would start it. `position` counts from 1 among all that wait; None where it stands in no line."""

    reason: str | None = None
    detail: str = ""
    position: int | None = None
    waiting: int = 0
    ahead: list[str] = []
    verdicts: list[VerdictView] = []
    groups: list[VerdictGroupView] = []
    binding: BindingView | None = None
    suggestions: list[SuggestionView] = []
    estimate: EstimateView | None = None
    fleet_versions: dict[str, int] = {}


class ExplainView(WaitingView):
    """Why a job is where it is. `receipt`: of its last placement, where there was one.

    Where a past instant was asked for: `at` is that instant, and what was in force then had been so `since`.
    """

    model_config = ConfigDict(
        frozen=True, json_schema_extra=example(job_id=JOB, state="queued", **_WAITING, fleet_versions={NODE: 118}, receipt=None)
    )

    job_id: str
    state: str
    receipt: ReceiptView | None = None
    at: datetime | None = None
    since: datetime | None = None


class PlaceView(Answer):
    """Where one rank would go, and the cards it would take."""

    rank: int
    node_id: str
    gpu_uuids: list[str]


class PlanView(WaitingView):
    """What would become of a job. `rejected`: it would not be taken, for this reason; `places`: where it would start at once."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra=example(
            rejected=None, places=[{"rank": 0, "node_id": NODE, "gpu_uuids": ["GPU-1"]}], receipt=_RECEIPT, waiting=17
        ),
    )

    rejected: str | None = None
    places: list[PlaceView] = []
    receipt: ReceiptView | None = None
