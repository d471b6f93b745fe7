"""Where a computation has the form of an intrinsic's pattern: which axes are its lanes and its reduction.

The computation may have more axes than the pattern, and read its operands at any indices; it must add up
products of operands of the pattern's dtypes, converted as the pattern converts them. An axis can be the lanes
if the operands that the pattern shares between lanes do not depend on it and the others do. Both operands
depend on the reduction.
"""

from __future__ import annotations

from typing import NamedTuple

from ansor.intrinsics.pattern import TensorIntrinsic, product_of
from ansor.te.expr import Expr, Read, Var, free_vars
from ansor.te.tensor import ComputeOp


class Axes(NamedTuple):
    """Names of the axes of a computation that an intrinsic runs over."""

    lane: str
    reduce: str


def match(op: ComputeOp, intrinsic: TensorIntrinsic) -> tuple[Axes, ...]:
    """
    All pairs of axes over which a computation is the intrinsic's pattern, the most promising first.

    Those are first whose operands lie as the instruction wants them: the reduction runs along the last
    dimension of an operand that all lanes share, the lanes along the last dimension of the result.
    """
    factors = product_of(op)
    if factors is None or op.output(0).dtype != intrinsic.dtype:
        return ()
    found: dict[Axes, tuple[bool, int]] = {}
    for a, b in (factors, factors[::-1]):
        dtypes = tuple(operand.dtype for operand in intrinsic.operands)
        if (a.dtype, b.dtype) != dtypes:
            continue
        operands = tuple(zip((a, b), intrinsic.varies, strict=True))
        for position, lane in enumerate(op.axis):
            if any((lane in free_vars(operand)) != varies for operand, varies in operands):
                continue
            for axis in op.reduce_axis:
                if all(axis in free_vars(operand) for operand, _ in operands):
                    along = all(_runs_along(operand, axis) for operand, varies in operands if not varies)
                    found.setdefault(Axes(lane.name, axis.name), (not along, -position))
    return tuple(sorted(found, key=lambda axes: found[axes]))


def _runs_along(operand: Expr, axis: Var) -> bool:
    """Whether the last index of a read is the axis itself."""
    return isinstance(operand, Read) and bool(operand.indices) and operand.indices[-1] is axis
