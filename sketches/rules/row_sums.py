"""Sums of rows as they are: no parts are factored out where the rows keep all cores busy.

Rule 6 of the paper factors a part out of every reduction that has no tiles, however many results it has, so
that it can be parallel, or be a vector. Where there are results enough for all cores, and generated code sums
rows in lanes anyway (`ansor.ir.passes.lane_reduction`), neither is gained, and each such stage makes three
sketches of one: a softmax has 9, attention with a mask 324.

Of long rows, which are not passed over in tiles either, there would be few programs left, and a search that
has tried the good ones would go on to reductions inside of others' loops, of seconds each: layer norm of 4096
rows of 8192, 64 trials, took 145 s instead of 50, and found as fast a program. Not in TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ansor.dtypes import dtype_info
from ansor.ir.terms import REDUCERS
from ansor.schedule.state import State
from ansor.te.expr import Binary, Reduce
from ansor.te.tensor import ComputeOp, Operation
from sketches.relations import needs_tiling
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.rfactor import TASKS_PER_CORE, reduction_in_parts
from sketches.rules.row_tiling import LONGEST_ROW

_LEAST_BITS: Final = {"float": 32}


class KeepRowSums:
    """A reduction of short rows in lanes, of which all cores have some -> itself; nothing is factored out."""

    name = "KeepRowSums"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        products = reduction_in_parts(context, state, stage_id)
        if products is None or needs_tiling(state, stage_id) or not _in_lanes(state.stages[stage_id].op):
            return Verdict.PASS
        results, terms = products
        enough = results > TASKS_PER_CORE * context.hardware.num_cores and terms <= LONGEST_ROW
        return Verdict.APPLY_AND_SKIP_REST if enough else Verdict.PASS

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        return [(state, stage_id - 1)]


def _in_lanes(op: Operation) -> bool:
    """Whether an operation is a sum, product, minimum or maximum that vectors accumulate."""
    if not isinstance(op, ComputeOp) or len(op.body) != 1 or not isinstance(op.body[0], Reduce):
        return False
    info, result = dtype_info(op.body[0].dtype), op.body[0].combiner.result[0]
    is_pairwise = isinstance(result, Binary) and result.op in REDUCERS
    return is_pairwise and info.bits >= _LEAST_BITS.get(info.kind, 8)
