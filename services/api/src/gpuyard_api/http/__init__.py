"""The HTTP side: one router for each noun. What they stand on: :mod:`gpuyard_api.http.context`, :mod:`gpuyard_api.http.answers`."""
