"""The mechanism that gpuyard's services run on: units of work, the bus, the database, what is seen from outside.

A service is data (:class:`gpuyard_runtime.service.Service`): synchronous handlers over a store that is held in memory and written
through. The runtime delivers, commits, publishes and acknowledges, so that each effect happens exactly once. It knows
no word of any service's field. Start reading at :mod:`gpuyard_runtime.service`, then :mod:`gpuyard_runtime.dispatch`.
"""
