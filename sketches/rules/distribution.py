"""Quantised products: multiplied out where an instruction then computes the products.

A product of bytes less their zero points, `(A[i, k] - a) * (B[k, j] - b)`, is one of 32-bit integers to the
machine. Multiplied out (`ansor.schedule.distribute_step`) it is one of bytes, which dot-product instructions
add up, and sums of rows and of columns, each of which takes part in a whole row or column of the result. That
is exact, as integers wrap. Where rows and columns are short the sums are no small part of the work, and the
product as it is defined is kept as well.

Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from ansor.schedule.distribute_step import distributable
from ansor.schedule.state import State
from ansor.schedule.steps import DistributeStep
from ansor.te.expr import int_value
from ansor.te.tensor import ComputeOp
from sketches.relations import is_computed
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.tensor import best_intrinsic
from sketches.rules.windows import WindowTiling

SMALL_PART: Final = 1 / 8
"""Terms of sums over products below which multiplying out is taken to pay for sure."""
_COLUMNS: Final = WindowTiling()


class DistributeProducts:
    """A product of sums that an instruction computes multiplied out -> that, only or also.

    Sums that are a small part of the work are tiled where they run along memory, and nothing else is tried.
    """

    name = "DistributeProducts"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        made = _multiplied_out(context, state, stage_id)
        if made is None:
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST if _has_small_sums(made) else Verdict.APPLY

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        made = _multiplied_out(context, state, stage_id)
        assert made is not None
        parts, small = made.steps[-1].new_stages, _has_small_sums(made)
        if small and context.params.cpu_window_tiling:
            for stage in parts[:-1]:
                if _COLUMNS.verdict(context, made, stage) is not Verdict.PASS:
                    ((made, _),) = _COLUMNS.apply(context, made, stage)
        return [(made, parts[-1] if made.is_output(parts.stop) else parts.stop)]


def _multiplied_out(context: SketchContext, state: State, stage_id: int) -> State | None:
    """The state with a stage multiplied out; None unless an intrinsic then computes the products."""
    stage = state.stages[stage_id]
    if context.is_gpu or not context.params.cpu_tensor_intrinsics or not is_computed(state, stage_id):
        return None
    as_defined = not stage.relations and stage.handles[0] in state.dag.ops
    factors = distributable(stage.compute) if as_defined else ()
    if not factors:
        return None
    made = state.apply(DistributeStep(stage_id, factors))
    products = made.steps[-1].new_stages[-1]
    slow = context.params.cpu_tensor_intrinsics > 1
    return None if best_intrinsic(context, made, products, slow) is None else made


def _has_small_sums(made: State) -> bool:
    """Whether the sums of what has just been multiplied out are a small part of its work."""
    *sums, products = (_terms(made.stages[stage].compute) for stage in made.steps[-1].new_stages)
    return sum(sums) < SMALL_PART * products


def _terms(op: ComputeOp) -> int:
    """How many terms an operation adds up for all of its results."""
    return prod(int_value(axis.extent) or 1 for axis in (*op.axis, *op.reduce_axis))
