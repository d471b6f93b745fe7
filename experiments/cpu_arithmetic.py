"""How many multiply-adds an operation of `bench_cpu` cannot do without: what sets its limit."""

from __future__ import annotations

from math import prod
from pathlib import Path

from ansor.te.expr import int_value
from experiments.cpu_cases import Case


def arithmetic(case: Case, records: Path) -> float:
    """
    Operations [flop] that set the limit: the computation's, or of the winner's algorithm the products.

    They are those of float32: an operation of another dtype counts as a register holds fewer or more of them.
    """
    task = case.task()
    if not case.algorithms:
        return max(0.0, task.compute_dag.flop_count) / case.products_per_lane
    key = task.best_record(records).input.task.workload_key
    winner = next(one for one in task.algorithms if one.workload_key == key)
    return 2.0 * sum(
        prod(int_value(axis.extent) or 1 for axis in (*op.axis, *op.reduce_axis))
        for op in winner.compute_dag.ops
        if op.reduce_axis
    )
