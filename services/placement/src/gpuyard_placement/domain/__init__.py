"""What placement decides, without I/O: start at :mod:`gpuyard_placement.domain.commit`, then `states`, `reconcile`, `silence`."""
