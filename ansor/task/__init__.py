"""Tasks: the target, the hardware, the workload registry, and what defines one tuning problem."""
