"""How many multiply-adds an operation of `bench_cpu` cannot do without: what sets its limit."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from ansor.te.expr import int_value
from experiments.cpu.cases import Case


def arithmetic(case: Case, records: Path) -> float:
    """
    Operations [flop] that set the limit: the computation's, or of the winner's algorithm the products.

    Products with the zeros of a convolution's border do not count, for nobody need compute them.
    """
    task = case.task()
    inside = inside_share(case) if case.is_convolution else 1.0
    if not case.algorithms:
        return inside * max(0.0, task.compute_dag.flop_count)
    key = task.best_record(records).input.task.workload_key
    winner = next(one for one in task.algorithms if one.workload_key == key)
    if winner.workload_key == task.workload_key:
        return inside * max(0.0, winner.compute_dag.flop_count)
    return 2.0 * sum(
        prod(int_value(axis.extent) or 1 for axis in (*op.axis, *op.reduce_axis))
        for op in winner.compute_dag.ops
        if op.reduce_axis
    )


def inside_share(case: Case) -> float:
    """The share of a convolution's products that meet an element of the image, and not of its border."""
    named = case.named
    share = 1.0
    for size in (named[name] for name in ("l", "d", "h", "w") if name in named):
        met, all_products = _met(size, named, transposed=case.workload == "transposed_conv2d")
        share *= met / all_products
    return share


def _met(size: int, named: Mapping[str, Any], transposed: bool) -> tuple[int, int]:
    """Along one dimension: products that meet an element, and those of the computation's definition."""
    kernel, stride, padding = named["kernel"], named["stride"], named["padding"]
    if transposed:  # Each pixel adds its kernel into the output; an output's sum is over one phase of taps.
        outputs = (size - 1) * stride - 2 * padding + kernel
        met = [0 <= i * stride + tap - padding < outputs for i in range(size) for tap in range(kernel)]
        return sum(met), outputs * -(-kernel // stride)
    dilation = named.get("dilation", 1)
    outputs = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    met = [0 <= o * stride + tap * dilation - padding < size for o in range(outputs) for tap in range(kernel)]
    return sum(met), outputs * kernel
