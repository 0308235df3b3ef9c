"""placement: who holds which part of which GPU, and whether a node may be believed.

Owns: nodes and their GPUs, allocations and the slices that they hold, cordons with their holders, leases, the orders given to nodes.
Hears: plans and releases (scheduler), cordons (api), what becomes of workloads (node agents), incidents (monitor), heartbeats.
Says: what was committed, refused, started, released; the full state of each node, with its version; a node's status; whether we are
blind; start and stop orders.
Never: orders the queue, prices anything, believes a plan without checking it, takes silence for death before a lease has ended.

Start reading at :mod:`gpuyard_placement.domain.commit` (giving slices away), then
:mod:`gpuyard_placement.domain.states` (an allocation's life).
"""
