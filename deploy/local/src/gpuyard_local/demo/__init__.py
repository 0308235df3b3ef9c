"""``make demo``: gpuyard's main job on real parts, shown step by step and checked.

Read :mod:`gpuyard_local.demo.run` for the order of the steps; each step is a function of :class:`gpuyard_local.demo.stage.Stage`.
"""
