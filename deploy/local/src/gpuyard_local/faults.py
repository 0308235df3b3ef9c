"""Making a simulated card or node misbehave, as the operator."""

import asyncio

from gpuyard_contracts.messages.asks import InjectFaultAskV1, InjectReplyV1
from gpuyard_runtime.faults import Refused as AskRefused
from gpuyard_runtime.faults import Unavailable
from pydantic import ValidationError

from gpuyard_local.stack import Stack

FAULTS = ("temperature", "ecc", "xid", "lost", "hang", "silence", "recover")


class Refused(Exception):
    """The fault was not taken."""


def inject(stack: Stack, node: str, fault: str, *, gpu: str | None = None, value: int | None = None) -> str:
    """Inject the fault; returns what the agent says of it. Raises :class:`Refused`, with the reason."""
    if node not in stack.node_ids:
        raise Refused(f"there is no node {node!r}; this stack has {', '.join(stack.node_ids)}")
    try:
        ask = InjectFaultAskV1.model_validate({"node_id": node, "fault": fault, "gpu": gpu, "value": value})
    except ValidationError:
        raise Refused(f"{fault!r} is no fault; known are {', '.join(FAULTS)}") from None
    reply = asyncio.run(_send(stack, ask))
    if not reply.is_done:
        raise Refused(reply.detail or "the agent did not take it")
    return reply.detail


async def _send(stack: Stack, ask: InjectFaultAskV1) -> InjectReplyV1:
    bus = await stack.operator()
    try:
        reply = await bus.ask(ask, seconds=5)
    except AskRefused as refused:
        raise Refused(refused.detail or refused.reason) from None
    except Unavailable:
        raise Refused(f"the agent of {ask.node_id} does not answer") from None
    finally:
        await bus.close()
    if not isinstance(reply, InjectReplyV1):
        raise Refused("the agent gave an answer of another kind")
    return reply
