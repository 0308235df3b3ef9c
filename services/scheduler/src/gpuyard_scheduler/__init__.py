"""The scheduler: who goes next, where, and why not.

Owns: jobs and their state machine, the queue, reservations (schema ``scheduler``).
Hears: requests of tenants and api (``REQUESTS``); what placement says of allocations, nodes and its own sight (``EVT_PLACEMENT``); the
state of every node (``FLEET``) and of every tenant (``TENANTS``).
Says: ``evt.scheduler.job.*`` for every turn in the life of a job; ``place`` (a plan) and ``release`` to placement. Answers two questions:
``explain`` and ``queue``.
Never: talks to nodes, holds GPUs, prices anything. A plan is a proposal; placement checks it against the truth and may refuse it.

Start reading at :mod:`gpuyard_scheduler.app`, for the decisions at :mod:`gpuyard_scheduler.domain.decide`.
"""
