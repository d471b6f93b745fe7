"""Tensor intrinsics in sketches: tiles made of what one instruction computes.

`TensorIntrinsicRule` finds the intrinsics of the target's machine that a stage matches (`ansor.intrinsics`)
and takes the widest, leaving alone what is slower there than multiplying converted operands. It splits the
lanes' axis and the reduction by the intrinsic's extents, which are fixed, tiles what is left by the target's
structure, as multi-level tiling would, and tensorizes the two fixed loops. A stage consumed elementwise also
has variants inside its consumer's tiles. Of C[i, j] with "SSRSRS" comes

    i.0 j.0.0  i.1 j.0.1  k.0.0  i.2 j.0.2  k.0.1  i.3 j.0.3  [j.1: 16 lanes] [k.1: 4 products]

When the walk comes to the operand that differs from lane to lane, the rule packs it in the order of these
loops, so that an instruction finds its bytes side by side: `[...][j.1][k.1]`, the interleaved layout that the
instruction's manual asks for, follows from the loops. A constant whose layout the task rewrites gets the
same layout that way.

Not in TVM, which has no tensor intrinsics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from ansor.codegen.machine import Machine
from ansor.intrinsics import Axes, TensorIntrinsic, match, tensor_intrinsics
from ansor.intrinsics.pattern import product_of
from ansor.schedule.stages import innermost_pieces
from ansor.schedule.state import State
from ansor.schedule.steps import TensorizeStep
from ansor.task.isa import cpu_name, is_slow
from ansor.task.target import Target
from ansor.te.expr import Expr, Read, distinct_nodes, free_vars, int_value
from ansor.te.tensor import ComputeOp
from sketches.packing import AddPackedRead
from sketches.relations import is_tensorized
from sketches.rule import SketchContext, Successor, Verdict
from sketches.tiling import can_tile, follow_levels, follow_tiling, tile, tile_consumer


@dataclass(frozen=True)
class TensorIntrinsicRule:
    """A stage that an instruction of the machine computes -> tiled by it; its operand -> packed for it.

    There is no sketch of such a stage without the instruction.

    Parameters
    ----------
    slow
        Whether instructions are used that are slower than the usual ones on converted operands (`is_slow`).
    """

    slow: bool = True
    name: ClassVar[str] = "TensorIntrinsicRule"

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        fits = best_intrinsic(context, state, stage_id, self.slow) is not None
        return Verdict.APPLY_AND_SKIP_REST if fits else _PACK.verdict(context, state, stage_id)

    def apply(self, context: SketchContext, state: State, stage_id: int) -> Sequence[Successor]:
        found = best_intrinsic(context, state, stage_id, self.slow)
        if found is None:
            return _PACK.apply(context, state, stage_id)
        intrinsic, axes = found
        consumer = tile_consumer(state, stage_id)
        lane = _position(state, stage_id, axes.lane)
        state = _set_apart(state, stage_id, lane, intrinsic.lanes)
        state = _set_apart(state, stage_id, _position(state, stage_id, axes.reduce), intrinsic.depth)
        state, splits = tile(state, stage_id, context.tiling_structure, innermost=2)
        lanes = len(state.stages[stage_id].iterators) - 2
        state = state.apply(TensorizeStep(stage_id, lanes, intrinsic.name))
        results: list[Successor] = [(state, stage_id - 1)]
        for level in follow_levels(context) if consumer is not None else ():
            assert consumer is not None
            fused = _set_apart(state, consumer, lane, intrinsic.lanes)
            fused = follow_tiling(fused, consumer, splits, level, innermost=1)
            results.append((fused.compute_at(stage_id, consumer, level * len(splits) - 1), stage_id - 1))
        return results


def best_intrinsic(
    context: SketchContext, state: State, stage_id: int, slow: bool
) -> tuple[TensorIntrinsic, Axes] | None:
    """
    Find the widest intrinsic of the machine that computes tiles of a stage, and the axes that it runs over.

    It fills its lanes. With `slow` it may be one that is slower than the usual instructions (`is_slow`).
    """
    op = state.stages[stage_id].op
    if context.is_gpu or not isinstance(op, ComputeOp) or not can_tile(context, state, stage_id):
        return None
    extents = {axis.name: int_value(axis.extent) for axis in (*op.axis, *op.reduce_axis)}
    if any(extent is None for extent in extents.values()):
        return None
    matches = [(one, found) for one in tensor_intrinsics() if (found := match(op, one))]
    matches.sort(key=lambda pair: (-pair[0].bits, pair[0].flipped is not None))
    for intrinsic, pairs in matches:
        for axes in pairs if _has(context.target, intrinsic, slow) else ():
            lanes, products = extents[axes.lane], extents[axes.reduce]
            assert lanes is not None
            assert products is not None
            if lanes >= intrinsic.lanes and products % intrinsic.depth == 0:
                return intrinsic, axes
    return None


def _position(state: State, stage_id: int, loop: str) -> int:
    position = state.stages[stage_id].index_of(loop)
    assert position is not None
    return position


def _set_apart(state: State, stage_id: int, position: int, length: int) -> State:
    """Split a loop and make the inner part the innermost loop of the stage."""
    state = state.split(stage_id, position, (length,))
    order = [at for at in range(len(state.stages[stage_id].iterators)) if at != position + 1]
    return state.reorder(stage_id, [*order, position + 1])


@lru_cache(maxsize=64)
def _has(target: Target, intrinsic: TensorIntrinsic, slow: bool) -> bool:
    """Whether the machine of a target has an intrinsic, and one that pays, if it is not to be `slow`."""
    if target.kind != "llvm" or not Machine.for_target(target).has_intrinsic(intrinsic):
        return False
    return slow or not is_slow(cpu_name(target), intrinsic.instruction)


class _PackOperand(AddPackedRead):
    """What a tensorized stage reads at another place in each lane -> a copy in the order of its loops.

    Left out is what `AddPackedRead` leaves out, constants above all whose layout the task rewrites.
    """

    def verdict(self, context: SketchContext, state: State, stage_id: int) -> Verdict:
        found = self._readings(context, state, stage_id)
        return Verdict.APPLY_AND_SKIP_REST if found else Verdict.PASS

    def _gains(self, context: SketchContext, state: State, stage_id: int, reader: int) -> bool:
        op, loops = state.stages[reader].compute, state.stages[reader].iterators
        pieces = innermost_pieces(state.stages[reader], loops[-2].name)
        lane = next((axis for axis in op.axis if pieces and axis.name == pieces[-1]), None)
        factors = product_of(op) or ()
        return any(_reads(f, state, stage_id) and lane in free_vars(f) for f in factors)

    @staticmethod
    def _fits(context: SketchContext, state: State, stage_id: int, reader: int) -> bool:
        return is_tensorized(state, reader) and AddPackedRead._fits(context, state, stage_id, reader)


def _reads(expr: Expr, state: State, stage_id: int) -> bool:
    """Whether an expression is a read of a stage's result at some place."""
    return any(
        isinstance(node, Read) and state.stage_id(node.tensor) == stage_id for node in distinct_nodes(expr)
    )


_PACK = _PackOperand()
