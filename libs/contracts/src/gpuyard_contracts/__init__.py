"""The nouns that gpuyard's services share: messages, subjects, streams and value types.

Owns: every shape that crosses a process boundary. Never: I/O, decisions, clocks.
Start at :mod:`gpuyard_contracts.envelope` (what a message is), then :mod:`gpuyard_contracts.catalog` (which there are)
and :mod:`gpuyard_contracts.topology` (where they live on the bus).
"""
