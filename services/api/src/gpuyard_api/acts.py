"""What is written at someone's request: each act is a function over one unit of work.

An act checks against the store, changes it, says what the others must hear, and leaves its line in the audit log, all in one commit.
It returns its result or the :class:`~gpuyard_api.problems.Problem` to answer: ordinary refusals are no exceptions, so they disturb
nobody else in the unit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpuyard_contracts.messages.placement import NodeCordonV1, NodeUncordonV1
from gpuyard_contracts.messages.requests import JobCancelV1, JobSubmitV1
from gpuyard_contracts.spec import JobSpec
from gpuyard_runtime.service import Tx

from gpuyard_api import mapping, problems
from gpuyard_api.domain.access import Principal
from gpuyard_api.domain.model import AuditRow, Job, JobAsk, Tenant, Token
from gpuyard_api.domain.secret import digest_of, hint_of, token_id_of
from gpuyard_api.handlers import EVENTS
from gpuyard_api.problems import Problem
from gpuyard_api.store import ApiStore

AUDIT = "audit"


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job was asked for; `is_new` is false where the bus brought the same request before."""

    job: Job
    is_new: bool


def note(tx: Tx[ApiStore], actor: str, tenant: str | None, action: str, target: str, result: str = "done", detail: str = "") -> None:
    """One line in the audit log."""
    tx.store.audit.add(AuditRow(tx.store.next_number(AUDIT), tx.now, actor, tenant, action, target, result, detail))


def noted(who: Principal, action: str, target: str, result: str, detail: str = "") -> Callable[[Tx[ApiStore]], None]:
    """A line in the audit log of its own: for what was refused at the door, or done by another service."""
    return lambda tx: note(tx, who.actor, who.tenant, action, target, result, detail)


def submit(who: Principal, ask: JobAsk, spec: JobSpec, request_id: str) -> Callable[[Tx[ApiStore]], Submitted | Problem]:
    """Ask the scheduler for a job. The job is there at once as `submitted`, so that whoever asked can find it."""

    def act(tx: Tx[ApiStore]) -> Submitted | Problem:
        job_id, tenant = ask.job_id, ask.tenant
        if tenant not in tx.store.tenants:
            return problems.not_found("tenant", tenant)
        known = tx.store.jobs.get(job_id)
        if known is not None:
            return Submitted(known, is_new=False)
        job = mapping.job_of_spec(job_id, tenant, spec, ask.asked_at)
        tx.store.jobs.put(job)
        tx.store.asks.add(ask)
        said = tx.say(JobSubmitV1(tenant=tenant, spec=spec, request_id=request_id), correlation_id=job_id)
        tx.store.events.add(mapping.event_row(said, tx.store.next_number(EVENTS), job_id=job_id))
        note(tx, who.actor, tenant, "job.submit", job_id)
        return Submitted(job, is_new=True)

    return act


def cancel(who: Principal, job: Job, reason: str) -> Callable[[Tx[ApiStore]], None]:
    """Ask the scheduler to end a job."""

    def act(tx: Tx[ApiStore]) -> None:
        by = "operator" if who.is_admin else "tenant"
        said = tx.say(JobCancelV1(tenant=job.tenant, job_id=job.job_id, reason=reason, by=by))
        tx.store.events.add(mapping.event_row(said, tx.store.next_number(EVENTS)))
        note(tx, who.actor, job.tenant, "job.cancel", job.job_id, detail=reason)

    return act


def cordon(who: Principal, node_id: str, reason: str, gpu_uuid: str | None, *, is_drain: bool) -> Callable[[Tx[ApiStore]], Problem | None]:
    """Tell placement to keep new work away from a node or card, and to move what runs there if it is a drain."""

    def act(tx: Tx[ApiStore]) -> Problem | None:
        action = "node.drain" if is_drain else "node.cordon"
        if (problem := _no_such_place(tx.store, node_id, gpu_uuid)) is not None:
            note(tx, who.actor, None, action, node_id, problem.code)
            return problem
        tx.say(NodeCordonV1(node_id=node_id, holder=who.actor, reason=reason, gpu_uuid=gpu_uuid, is_drain=is_drain))
        note(tx, who.actor, None, action, _place(node_id, gpu_uuid), detail=reason)
        return None

    return act


def uncordon(who: Principal, node_id: str, holder: str, gpu_uuid: str | None) -> Callable[[Tx[ApiStore]], Problem | None]:
    """Tell placement that a holder lets go."""

    def act(tx: Tx[ApiStore]) -> Problem | None:
        if (problem := _no_such_place(tx.store, node_id, None)) is not None:  # a card that is lost can still be let go
            note(tx, who.actor, None, "node.uncordon", node_id, problem.code)
            return problem
        tx.say(NodeUncordonV1(node_id=node_id, holder=holder, gpu_uuid=gpu_uuid))
        note(tx, who.actor, None, "node.uncordon", _place(node_id, gpu_uuid), detail=holder)
        return None

    return act


def _no_such_place(store: ApiStore, node_id: str, gpu_uuid: str | None) -> Problem | None:
    node = store.nodes.get(node_id)
    if node is None:
        return problems.not_found("node", node_id)
    if gpu_uuid is not None and gpu_uuid not in {gpu.uuid for gpu in node.facts.gpus} | set(node.lost_gpus):
        return problems.not_found("GPU", gpu_uuid)
    return None


def _place(node_id: str, gpu_uuid: str | None) -> str:
    return node_id if gpu_uuid is None else f"{node_id}/{gpu_uuid}"


def create_tenant(who: Principal, wanted: dict[str, Any]) -> Callable[[Tx[ApiStore]], Tenant | Problem]:
    """A new tenant; the others hear of it. The same one again is answered as it is."""

    def act(tx: Tx[ApiStore]) -> Tenant | Problem:
        name = wanted["tenant"]
        known = tx.store.tenants.get(name)
        if known is None:
            made = Tenant(version=1, created_at=tx.now, changed_at=tx.now, **wanted)
            return _keep_tenant(tx, who, made, "tenant.create")
        if all(getattr(known, field) == value for field, value in wanted.items()):
            return known
        note(tx, who.actor, name, "tenant.create", name, "tenant-exists")
        detail = f"Tenant {name!r} is there already, with other settings (version {known.version})."
        detail += " Change it with `gpuyard tenant set` or PATCH."
        return problems.conflict("tenant-exists", "The tenant exists", detail, version=known.version)

    return act


def change_tenant(who: Principal, name: str, version: int, changes: dict[str, Any]) -> Callable[[Tx[ApiStore]], Tenant | Problem]:
    """Change what was given, if the tenant is still as the caller saw it."""

    def act(tx: Tx[ApiStore]) -> Tenant | Problem:
        known = tx.store.tenants.get(name)
        if known is None:
            return problems.not_found("tenant", name)
        if known.version != version:
            note(tx, who.actor, name, "tenant.change", name, "version-conflict")
            detail = f"Tenant {name!r} is at version {known.version}, not {version}: read it again and decide anew."
            return problems.conflict("version-conflict", "Somebody was faster", detail, version=known.version)
        return _keep_tenant(tx, who, replace(known, version=version + 1, changed_at=tx.now, **changes), "tenant.change")

    return act


def _keep_tenant(tx: Tx[ApiStore], who: Principal, row: Tenant, action: str) -> Tenant:
    tx.store.tenants.put(row)
    tx.say(mapping.tenant_state(row), once=tenant_said(row))
    note(tx, who.actor, row.tenant, action, row.tenant, detail=f"version {row.version}")
    return row


def tenant_said(row: Tenant) -> str:
    """What names one version of a tenant's state, whoever says it and how often."""
    return f"tenant/{row.tenant}/{row.version}"


def create_token(who: Principal, tenant: str | None, name: str, secret: str) -> Callable[[Tx[ApiStore]], Token | Problem]:
    """A new token for a tenant, or for an operator (None)."""

    def act(tx: Tx[ApiStore]) -> Token | Problem:
        if tenant is not None and tenant not in tx.store.tenants:
            return problems.not_found("tenant", tenant)
        token = _new_token(tx, tenant, name, secret, who.actor)
        note(tx, who.actor, tenant, "token.create", token.token_id, detail=name)
        return token

    return act


def _new_token(tx: Tx[ApiStore], tenant: str | None, name: str, secret: str, by: str) -> Token:
    digest = digest_of(secret)
    role = "admin" if tenant is None else "tenant"
    token = Token(digest, token_id_of(digest), role, tenant, name, hint_of(secret), tx.now, by)
    tx.store.tokens.put(token)
    return token


def revoke_token(who: Principal, tenant: str | None, token_id: str) -> Callable[[Tx[ApiStore]], Token | Problem]:
    """End a token; its streams end within seconds. The last operator's token stays, or nobody could let anybody in again."""

    def act(tx: Tx[ApiStore]) -> Token | Problem:
        token = tx.store.token_named(token_id)
        if token is None or token.tenant != tenant:
            return problems.not_found("token", token_id)
        if token.revoked_at is not None:
            return token
        if token.role == "admin" and len(tx.store.live_admins()) == 1:
            note(tx, who.actor, None, "token.revoke", token_id, "last-operator")
            return problems.conflict("last-operator", "The last operator", "This is the last operator's token; make another one first.")
        return _revoke(tx, who, token)

    return act


def rotate_token(who: Principal, secret: str) -> Callable[[Tx[ApiStore]], Token | Problem]:
    """A new token in place of the caller's own, which ends in the same commit."""

    def act(tx: Tx[ApiStore]) -> Token | Problem:
        old = tx.store.tokens.get(who.token.digest)
        if old is None or old.revoked_at is not None:
            return problems.unauthenticated("This token has been revoked.")
        made = _new_token(tx, old.tenant, old.name, secret, who.actor)
        _revoke(tx, who, old)
        note(tx, who.actor, old.tenant, "token.rotate", made.token_id, detail=f"in place of {old.token_id}")
        return made

    return act


def _revoke(tx: Tx[ApiStore], who: Principal, token: Token) -> Token:
    ended = replace(token, revoked_at=tx.now)
    tx.store.tokens.put(ended)
    note(tx, who.actor, token.tenant, "token.revoke", token.token_id, detail=token.name)
    return ended


def first_operator(secret: str) -> Callable[[Tx[ApiStore]], None]:
    """The token by which the first operator comes in, where there is none."""

    def act(tx: Tx[ApiStore]) -> None:
        if not tx.store.live_admins():
            token = _new_token(tx, None, "admin", secret, "first-start")
            note(tx, "first-start", None, "token.create", token.token_id, detail="admin")

    return act
