"""The step that computes a stage over more elements and products than asked for.

An instruction that multiplies small matrices cannot leave out a part of them. So where the sizes of a product
are no multiples of its own, the product is computed with larger ones, into a cache, and what was asked for
is copied out:

    C.local[i, j] = sum of A'[i, k] * B'[k, j]     i in 0..48, j in 0..48, k in 0..48
    C[i, j] = C.local[i, j]                        i in 0..40, j in 0..40

That is the same if what is added is zero. A' and B' are zero beyond the tensors, as copies in a padded
layout are (`RewriteLayoutStep`), and both have to be: zero times infinity is not zero. Elements that are
added may be anything, nobody reads them.

Not in TVM. TVM's later schedules have it as `pad_einsum`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from ansor.ir.rewriting import conjuncts
from ansor.ir.simplify import Bounds, interval
from ansor.schedule.cache_steps import check_scope, insert_cache
from ansor.schedule.extents import MAX_EXTENT
from ansor.schedule.naming import fresh_name
from ansor.schedule.rebuilding import refuse_transformed
from ansor.schedule.stages import Stage
from ansor.schedule.step_base import Step, refuse, stage_at
from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Expr,
    IterVar,
    Read,
    Reduce,
    Select,
    Var,
    distinct_nodes,
    free_vars,
    int_value,
    memoised,
    substitute,
)
from ansor.te.reduction import builtin_name
from ansor.te.tensor import ComputeOp, format_shape

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class PadStep(Step):
    """Compute a stage into `scope` first, over axes of other `extents`, and copy out what was asked for.

    `extents` are those of all axes, then of all reduction axes, none below what it is. As with a cache_write,
    the new stage `X.scope` takes X's position, and X becomes the copy and moves one position on.
    """

    code: ClassVar[str] = "PAD"
    in_reference: ClassVar[bool] = False
    stage: int
    scope: str
    extents: tuple[int, ...]

    @property
    def new_stages(self) -> range:
        return range(self.stage, self.stage + 1)

    def apply(self, state: State) -> State:
        check_scope("pad", self.scope)
        stage = stage_at(state, self.stage, "pad")
        refuse_transformed(state, self.stage, "pad")
        op = stage.compute
        old = _checked_extents(stage, self.extents)
        taken = {axis.name for axis in op.reduce_axis}
        names = [fresh_name(f"{axis.name}_c", taken) for axis in op.axis]
        names += [axis.name for axis in op.reduce_axis]
        axes = tuple(
            IterVar(name, axis.dtype, Const(extent, INDEX_DTYPE), axis.kind)
            for name, axis, extent in zip(names, (*op.axis, *op.reduce_axis), self.extents, strict=True)
        )
        (root,) = op.body
        more = {axis: was for axis, was in zip(axes, old, strict=True) if int_value(axis.extent) != was}
        mapping: dict[Var, Expr] = dict(zip((*op.axis, *op.reduce_axis), axes, strict=True))
        spatial, reduced = axes[: len(op.axis)], axes[len(op.axis) :]
        if isinstance(root, Reduce):
            sources = tuple(substitute(source, mapping) for source in root.sources)
            condition = None if root.condition is None else substitute(root.condition, mapping)
            body: Expr = replace(root, sources=sources, axes=reduced, condition=condition)
            _check_zeros(stage, root, sources, {axis: more[axis] for axis in reduced if axis in more})
        else:
            body = substitute(root, mapping)
        _check_reads(stage, body, axes, set(more))
        return insert_cache(state, self.stage, self.scope, spatial, reduced, (body,))


def _checked_extents(stage: Stage, extents: Sequence[int]) -> list[int]:
    """What the extents of the axes are; refuse others that are not as many, or smaller."""
    op, what = stage.compute, f"pad of stage {stage.name!r}"
    if op.num_outputs != 1:
        raise refuse(stage, f"{what}: it has several outputs, which are not padded")
    axes = (*op.axis, *op.reduce_axis)
    known = [int_value(axis.extent) for axis in axes]
    old = [extent for extent in known if extent is not None]
    if len(old) < len(known):
        raise refuse(stage, f"{what}: an extent is symbolic; padding needs numbers")
    if any(new > MAX_EXTENT for new in extents):
        raise refuse(stage, f"{what}: {list(extents)} are more than loop variables count, 2**31 - 1")
    if len(extents) != len(old) or any(new < was for new, was in zip(extents, old, strict=True)):
        listed = ", ".join(f"{axis.name} ({was})" for axis, was in zip(axes, old, strict=True))
        raise refuse(
            stage, f"{what}: expected an extent for each of {listed}, none smaller, found {list(extents)}"
        )
    return old


def _check_reads(stage: Stage, body: Expr, axes: Sequence[IterVar], more: set[IterVar]) -> None:
    """Refuse reads that leave a tensor, or may, where axes are longer than they were."""
    bounds = Bounds({axis: (0, (int_value(axis.extent) or 1) - 1) for axis in axes})
    for read in distinct_nodes(body):
        if not isinstance(read, Read):
            continue
        for dim, (index, extent) in enumerate(zip(read.indices, read.tensor.shape, strict=True)):
            size = int_value(extent)
            if free_vars(index).isdisjoint(more):
                continue
            gathers = any(isinstance(node, Read) for node in distinct_nodes(index))
            low, high = (None, None) if gathers else interval(index, bounds)
            if low is None or high is None or size is None or low < 0 or high >= size:
                reach = "at places that are not known" if low is None or high is None else f"up to {high}"
                raise refuse(
                    stage,
                    f"pad of stage {stage.name!r}: it would read {read.tensor.name!r} of shape "
                    f"{format_shape(read.tensor.shape)} {reach} along dimension {dim}; let it read a copy "
                    "in a padded layout: rewrite_layout with readers",
                )


def _check_zeros(stage: Stage, root: Reduce, sources: Sequence[Expr], more: dict[IterVar, int]) -> None:
    """Refuse a reduction to which longer axes may add something."""
    for axis, extent in more.items():
        if builtin_name(root.combiner) != "sum" or not _vanishes(sources[0], axis, extent):
            raise refuse(
                stage,
                f"pad of stage {stage.name!r}: what is reduced along {axis.name!r} beyond {extent} must be a "
                "sum of zeros: of products of which each factor is read from a copy in a layout that is "
                f"padded there (rewrite_layout with readers), at [{axis.name}]",
            )


def _vanishes(expr: Expr, axis: Var, extent: int) -> bool:
    """Whether an expression is certainly zero where an axis is not below an extent."""
    return memoised(expr, lambda node, zero: _node_vanishes(node, axis, extent, zero))


def _node_vanishes(expr: Expr, axis: Var, extent: int, zero: Callable[[Expr], bool]) -> bool:
    match expr:
        case Cast(a=a):
            return zero(a)
        case Binary(op=BinaryOp.MUL, a=a, b=b):
            return zero(a) and zero(b)
        case Read(tensor=tensor, indices=indices) if isinstance(tensor.op, ComputeOp):
            body = tensor.op.body[tensor.value_index]
            if not isinstance(body, Select) or not _is_zero(body.other):
                return False
            own = [mine for mine, index in zip(tensor.op.axis, indices, strict=True) if index is axis]
            return any(_is_below(part, mine, extent) for part in conjuncts(body.cond) for mine in own)
        case _:
            return False


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.value == 0


def _is_below(cond: Expr, axis: Var, extent: int) -> bool:
    """Whether a condition says that an axis is below an extent, or a smaller one."""
    match cond:
        case Binary(op=BinaryOp.LT, a=a, b=b) if a is axis:
            limit = int_value(b)
            return limit is not None and limit <= extent
        case _:
            return False
