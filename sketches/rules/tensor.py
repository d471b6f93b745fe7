"""Tensor intrinsics in sketches: tiles made of what one instruction computes.

`TensorIntrinsicRule` finds the intrinsics of the target's machine that a stage matches (`ansor.intrinsics`)
and takes the widest, leaving alone what is slower there than multiplying converted operands. It splits the
lanes' axis and the reduction by the intrinsic's extents, which are fixed, tiles what is left by the target's
structure, as multi-level tiling would, and tensorizes the two fixed loops. A stage consumed elementwise also
has variants inside its consumer's tiles. Of C[i, j] with "SSRSRS" comes

    i.0 j.0.0  i.1 j.0.1  k.0.0  i.2 j.0.2  k.0.1  i.3 j.0.3  [j.1: 16 lanes] [k.1: 4 products]

Where the machine has a matrix unit for such operands (`ansor.ir.matrix_products`), the rows and words of a
tile are set apart, too: ... i.0.3 j.0.3 [i.1: 16 rows] [k.1: 16 words] [j.1: 16 lanes] [k.2: 4 products].

When the walk comes to the operand that differs from lane to lane, the rule packs it in the order of these
loops, so that an instruction finds its bytes side by side: `[...][j.1][k.1]`, the interleaved layout that the
instruction's manual asks for, follows from the loops. A constant whose layout the task rewrites gets the
same layout that way.

Not in TVM, which has no tensor intrinsics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

from ansor.codegen.machine import Machine
from ansor.intrinsics import Axes, TensorIntrinsic, match, tensor_intrinsics
from ansor.intrinsics.matrix import FEWEST_ROWS, TILE_ROWS
from ansor.intrinsics.pattern import product_of
from ansor.schedule.stages import innermost_pieces
from ansor.schedule.state import State
from ansor.schedule.steps import TensorizeStep
from ansor.task.isa import cpu_name, is_slow
from ansor.task.target import Target
from ansor.te.expr import Expr, Read, distinct_nodes, free_vars, int_value
from ansor.te.tensor import ComputeOp
from sketches.relations import is_tensorized
from sketches.rule import SketchContext, Successor, Verdict
from sketches.rules.packing import AddPackedRead
from sketches.rules.tiling import can_tile, follow_levels, follow_tiling, tile, tile_consumer


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
        block = matrix_block(context.target, state, stage_id, intrinsic, axes)
        of_result = ({} if block is None else {block.axis: (block.rows,)}) | {axes.lane: (intrinsic.lanes,)}
        of_terms = (intrinsic.depth,) if block is None else (block.words, intrinsic.depth)
        state, innermost = _set_apart(state, stage_id, {**of_result, axes.reduce: of_terms})
        state, splits = tile(state, stage_id, context.tiling_structure, innermost=innermost)
        lanes = len(state.stages[stage_id].iterators) - 2
        state = state.apply(TensorizeStep(stage_id, lanes, intrinsic.name))
        results: list[Successor] = [(state, stage_id - 1)]
        for level in follow_levels(context) if consumer is not None else ():
            assert consumer is not None
            names = dict(zip(_axes(state, stage_id), _axes(state, consumer), strict=True))
            fused, innermost = _set_apart(state, consumer, {names[a]: n for a, n in of_result.items()})
            fused = follow_tiling(fused, consumer, splits, level, innermost=innermost)
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
    for intrinsic, axes, terms in _with_full_lanes(op, context.target):
        block = matrix_block(context.target, state, stage_id, intrinsic, axes)
        if not slow and block is None and _is_slow(context.target, intrinsic):
            continue
        if terms % intrinsic.depth == 0:
            return intrinsic, axes
    return None


def unfilled(op: ComputeOp, target: Target) -> tuple[TensorIntrinsic, int] | None:
    """
    Tell which intrinsic of the machine would compute a stage, were its sum a little longer.

    Returns
    -------
    tuple or None
        The widest, and how many terms the sum has; None if the stage can have one as it is, or none at all.
    """
    found = [(intrinsic, terms) for intrinsic, _, terms in _with_full_lanes(op, target)]
    if any(terms % intrinsic.depth == 0 for intrinsic, terms in found):
        return None
    return found[0] if found else None


def _with_full_lanes(op: ComputeOp, target: Target) -> Iterator[tuple[TensorIntrinsic, Axes, int]]:
    """The machine's intrinsics that a stage has the form of, widest first, with axes and the sum's terms."""
    extents = {axis.name: int_value(axis.extent) for axis in (*op.axis, *op.reduce_axis)}
    if any(extent is None for extent in extents.values()):
        return
    matches = [(one, found) for one in tensor_intrinsics() if (found := match(op, one))]
    matches.sort(key=lambda pair: (-pair[0].bits, pair[0].flipped is not None))
    for intrinsic, pairs in matches:
        for axes in pairs if _has(target, intrinsic) else ():
            lanes, terms = extents[axes.lane], extents[axes.reduce]
            assert lanes is not None
            assert terms is not None
            if lanes >= intrinsic.lanes:
                yield intrinsic, axes, terms


class MatrixBlock(NamedTuple):
    """What a matrix unit multiplies at once: so many rows along an axis, and words of the reduction."""

    axis: str
    rows: int
    words: int


def matrix_block(
    target: Target, state: State, stage_id: int, intrinsic: TensorIntrinsic, axes: Axes
) -> MatrixBlock | None:
    """The block of a stage for the matrix unit of the target's machine; None if there is none."""
    if target.kind != "llvm" or not Machine.for_target(target).has_tiles(intrinsic):
        return None
    op = state.stages[stage_id].compute
    extents = {axis.name: int_value(axis.extent) or 0 for axis in (*op.axis, *op.reduce_axis)}
    steps = extents[axes.reduce] // intrinsic.depth
    words = max((n for n in range(1, TILE_ROWS + 1) if steps % n == 0), default=0)
    factors = product_of(op) or ()
    found: list[MatrixBlock] = []
    for axis in op.axis:
        moved = [factor for factor in factors if axis in free_vars(factor)]
        if len(moved) == 1 and not _moves_along(moved[0], op, axes.lane):
            extent = extents[axis.name]
            parts = max(1, -(-extent // TILE_ROWS))
            found.append(MatrixBlock(axis.name, -(-extent // parts), words))
    best = max(reversed(found), key=lambda block: block.rows, default=None)
    return best if best is not None and min(best.rows, best.words) >= FEWEST_ROWS else None


def _moves_along(factor: Expr, op: ComputeOp, name: str) -> bool:
    """Whether an operand depends on an axis of the result."""
    return any(axis.name == name and axis in free_vars(factor) for axis in op.axis)


def _axes(state: State, stage_id: int) -> list[str]:
    """The names of the axes of a stage's result."""
    return [axis.name for axis in state.stages[stage_id].compute.axis]


def _set_apart(state: State, stage_id: int, lengths: Mapping[str, tuple[int, ...]]) -> tuple[State, int]:
    """Split axes and make the inner parts the innermost loops of the stage; also gives how many these are.

    They are in the order of the axes; of rows, lanes, words and depth the words go before the lanes.
    """
    for axis, parts in lengths.items():
        position = state.stages[stage_id].index_of(axis)
        assert position is not None
        state = state.split(stage_id, position, parts)
    inner = [f"{axis}.{part}" for axis, parts in lengths.items() for part in range(1, len(parts) + 1)]
    if len(inner) > 3:
        rows, lanes, words, depth = inner
        inner = [rows, words, lanes, depth]
    loops = [loop.name for loop in state.stages[stage_id].iterators]
    order = [at for at, name in enumerate(loops) if name not in inner]
    return state.reorder(stage_id, [*order, *map(loops.index, inner)]), len(inner)


@lru_cache(maxsize=64)
def _has(target: Target, intrinsic: TensorIntrinsic) -> bool:
    """Whether the machine of a target has an intrinsic."""
    return target.kind == "llvm" and Machine.for_target(target).has_intrinsic(intrinsic)


def _is_slow(target: Target, intrinsic: TensorIntrinsic) -> bool:
    """Whether an intrinsic is slower than the usual instructions, but for a matrix unit in its place."""
    return is_slow(cpu_name(target), intrinsic.instruction)


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
