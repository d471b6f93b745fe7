"""The step that turns the innermost loops of a stage into a tensor intrinsic.

On a CPU two loops are involved: the lanes, which become a vector loop, and inside of it the products that are
added up in each lane, which become a *tensorized* loop. Both go on meaning what they say. A machine that has
the intrinsic executes the tensorized loop as one instruction on all lanes; any other one unrolls it, so
records replay everywhere.

An intrinsic of a GPU is executed by the threads of a warp together (`ansor.intrinsics.warp`). What each of
them does are three loops, over the rows and columns that it holds and over products, which all become
tensorized loops. Which thread does what follows from the loops that are bound around them. Where that is not
what the instruction wants, or the machine has it not, they are unrolled.

Not in TVM's records, whose tensorized stages name code that a log does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ansor.errors import DefinitionError
from ansor.intrinsics import (
    ROUNDED_OPERANDS_ATTR,
    TensorIntrinsic,
    WarpIntrinsic,
    get_tensor_intrinsic,
    get_warp_intrinsic,
    is_warp_intrinsic,
    match,
    match_warp,
)
from ansor.intrinsics.pattern import product_of
from ansor.schedule.extents import Extent, extent_of
from ansor.schedule.stages import (
    Annotation,
    Iterator,
    Stage,
    innermost_pieces,
    made_from,
    part_lengths,
    stated_extent,
)
from ansor.schedule.step_base import Step, iterator_at, refuse, refuse_stage_in_lanes
from ansor.te.tensor import ComputeOp

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class TensorizeStep(Step):
    """Compute the loop at `iterator` and all inside of it, the innermost two (three), by an intrinsic.

    Rewrite: `for i in 0..16: for k in 0..4` -> `vectorize i: tensorize k`. The loops run over the innermost
    pieces of two axes that match the pattern, with the pattern's extents; the reduction is divided without
    remainder, since an instruction cannot leave out some of its products.
    For a warp: `for i in 0..2: for j in 0..2: for k in 0..16` -> all three of them tensorized.
    """

    code: ClassVar[str] = "TI"
    in_reference: ClassVar[bool] = False
    stage: int
    iterator: int
    intrinsic: str

    def apply(self, state: State) -> State:
        stage, lanes = iterator_at(state, self.stage, self.iterator, "tensorize")
        what = f"tensorize {lanes.name!r} of stage {stage.name!r}"
        if is_warp_intrinsic(self.intrinsic):
            return self._by_warps(state, stage, get_warp_intrinsic(self.intrinsic), what)
        try:
            intrinsic = get_tensor_intrinsic(self.intrinsic)
        except DefinitionError as error:
            raise refuse(stage, f"{what}: {error}", self.iterator) from None
        if self.iterator != len(stage.iterators) - 2:
            raise refuse(
                stage,
                f"{what}: {intrinsic.name} computes the two innermost loops, the lanes and inside of them "
                "the reduction; reorder first",
                self.iterator,
            )
        products = stage.iterators[-1]
        for position, extent in ((self.iterator, intrinsic.lanes), (self.iterator + 1, intrinsic.depth)):
            loop = stage.iterators[position]
            if not _runs(stage, loop, extent) or loop.annotation is not Annotation.NONE:
                raise refuse(
                    stage,
                    f"{what}: {intrinsic.name} computes {intrinsic.lanes} lanes of {intrinsic.depth} "
                    f"products each, in loops not annotated yet; {_found(stage, loop)}",
                    position,
                )
        _check_axes(stage, intrinsic, (lanes.name, products.name), what)
        loops = (
            *stage.iterators[:-2],
            replace(lanes, annotation=Annotation.VECTORIZE),
            replace(products, annotation=Annotation.TENSORIZE),
        )
        changed = state.with_stage(self.stage, replace(stage, iterators=loops))
        refuse_stage_in_lanes(changed, self.stage, "tensorize")
        return changed

    def _by_warps(self, state: State, stage: Stage, intrinsic: WarpIntrinsic, what: str) -> State:
        count = len(stage.iterators) - self.iterator
        if count != len(intrinsic.held):
            raise refuse(
                stage,
                f"{what}: {intrinsic.name} computes the three innermost loops, over the rows and the columns "
                "that a thread holds, and over products; reorder first",
                self.iterator,
            )
        loops = stage.iterators[self.iterator :]
        for at, (loop, extent) in enumerate(zip(loops, intrinsic.held, strict=True)):
            if not _runs(stage, loop, extent) or loop.annotation is not Annotation.NONE:
                rows, columns, depth = intrinsic.held
                raise refuse(
                    stage,
                    f"{what}: {intrinsic.name} computes {rows} rows and {columns} columns of {depth} "
                    f"products each in one thread, in loops not annotated yet; {_found(stage, loop)}",
                    self.iterator + at,
                )
        _check_warp_axes(stage, intrinsic, [loop.name for loop in loops], what)
        marked = tuple(replace(loop, annotation=Annotation.TENSORIZE) for loop in loops)
        return state.with_stage(
            self.stage, replace(stage, iterators=(*stage.iterators[: self.iterator], *marked))
        )


def _runs(stage: Stage, loop: Iterator, times: int) -> bool:
    extent = stated_extent(stage, loop)
    return isinstance(extent, int) and extent == times


def _found(stage: Stage, loop: Iterator) -> str:
    """What a loop is that an instruction cannot compute."""
    extent = stated_extent(stage, loop)
    known = (
        "an extent that depends on where the stage is computed" if extent is None else f"the extent {extent}"
    )
    return f"{loop.name!r} has {known} and is annotated {loop.annotation.word}"


def _check_axes(stage: Stage, intrinsic: TensorIntrinsic, loops: tuple[str, str], what: str) -> None:
    """Refuse loops that are no innermost pieces of axes over which the stage is the intrinsic's pattern."""
    pairs = match(stage.compute, intrinsic)
    if not pairs:
        raise refuse(stage, f"{what}: {_mismatch(stage.compute, intrinsic)}")
    lane, products = (innermost_pieces(stage, name) for name in loops)
    if lane is None or products is None or (lane[-1], products[-1]) not in pairs:
        found = " or ".join(f"{a!r} and {b!r}" for a, b in pairs)
        raise refuse(
            stage,
            f"{what}: the loops must be the innermost parts of splits of axes that match {intrinsic.name}: "
            + found,
        )
    _check_depth(stage, intrinsic, products[1:], what)


def _check_depth(
    stage: Stage, intrinsic: TensorIntrinsic | WarpIntrinsic, products: Sequence[str], what: str
) -> None:
    """Refuse parts of a reduction that the number of products which are added up at once does not divide."""
    extents = _extents(stage)
    for name in products:
        extent = extents.get(name)
        if not isinstance(extent, int) or extent % intrinsic.depth:
            raise refuse(
                stage,
                f"{what}: {intrinsic.name} adds up {intrinsic.depth} products, which must divide {name!r} "
                f"with its {extent} iterations; pad it, or split the axis by {intrinsic.depth} first",
            )


def _mismatch(op: ComputeOp, intrinsic: TensorIntrinsic) -> str:
    """Why a computation has not the form of an intrinsic's pattern."""
    text = f"its computation has not the form of {intrinsic}"
    factors, dtype = product_of(op), op.output(0).dtype
    if factors is None:
        return f"{text}; write te.sum of a product whose factors are both te.cast to {intrinsic.dtype}"
    found = [factor.dtype for factor in factors]
    wanted = [operand.dtype for operand in intrinsic.operands]
    if dtype != intrinsic.dtype or found not in (wanted, wanted[::-1]):
        return f"{text}; it is {dtype} += {found[0]} * {found[1]}"
    return f"{text}; along the lanes the factors with [lane], and only they, must be read: no axis is such"


def _extents(stage: Stage) -> dict[str, Extent | None]:
    """Extents of axes, and of parts of splits as far as their lengths say."""
    op = stage.compute
    axes: dict[str, Extent | None] = {a.name: extent_of(a.extent) for a in (*op.axis, *op.reduce_axis)}
    return axes | part_lengths(stage)


def _check_warp_axes(stage: Stage, intrinsic: WarpIntrinsic, loops: list[str], what: str) -> None:
    """Refuse loops that are no pieces of axes over which the stage is the pattern of an intrinsic."""
    op = stage.compute
    known = match_warp(op, intrinsic)
    if not known:
        allowed = op.attrs.get(ROUNDED_OPERANDS_ATTR) == intrinsic.rounded or not intrinsic.rounded
        hint = f"; it has to allow rounding: attrs={{{ROUNDED_OPERANDS_ATTR!r}: {intrinsic.rounded!r}}}"
        text = f"{what}: its computation has not the form of {intrinsic}"
        raise refuse(stage, text if allowed else text + hint)
    names = [(op.axis[i].name, op.axis[j].name, op.reduce_axis[k].name) for i, j, k in known]
    row, column, products = ({*made_from(stage, name)} for name in loops)
    found = [axes for axes in names if axes[0] in row and axes[1] in column and axes[2] in products]
    pieces = innermost_pieces(stage, loops[-1])
    if not found or pieces is None:
        listed = " or ".join(f"{i!r}, {j!r} and {k!r}" for i, j, k in names)
        raise refuse(
            stage, f"{what}: the loops must be parts of axes that match {intrinsic.name}, in order: {listed}"
        )
    _check_depth(stage, intrinsic, pieces[1:], what)
