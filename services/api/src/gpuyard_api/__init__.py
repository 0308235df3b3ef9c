"""The door of gpuyard: HTTP in, answers and live streams out.

Owns: tenants with quota, weight and SLA class, tokens, operators, idempotency of requests, the audit log, and the read models (jobs and
their events, incidents) that it projects from what the others say.
Hears: every ``evt.*`` of all services through its durables, and the state of nodes (``FLEET``).
Says: job requests on behalf of tenants (``REQUESTS``), tenants' state (``TENANTS``), operators' acts on nodes (``CMD_PLACEMENT``).
Never: schedules, prices, touches a node, or decides about a job: a request is well-formed and permitted, or it is not.

Start reading at :mod:`gpuyard_api.app`, then :mod:`gpuyard_api.handlers` (what is projected) and :mod:`gpuyard_api.acts` (what is written).
"""
