"""How far an index moves when a variable goes one up."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.te.buffer import Buffer
from ansor.te.expr import Binary, BinaryOp, Expr, Var, free_vars, int_value, walk


def coefficient(expr: Expr, var: Var) -> int | None:
    """The factor of `var` in an index that is linear in it; None if it is not seen to be linear."""
    if expr is var:
        return 1
    if not any(node is var for node in walk(expr)):
        return 0
    if isinstance(expr, Binary):
        a, b = coefficient(expr.a, var), coefficient(expr.b, var)
        if a is None or b is None:
            return None
        if expr.op is BinaryOp.ADD:
            return a + b
        if expr.op is BinaryOp.SUB:
            return a - b
        if expr.op is BinaryOp.MUL:
            scale = int_value(expr.b) if b == 0 else int_value(expr.a)
            return None if scale is None else scale * (a + b)
    return None


def is_contiguous(buffer: Buffer, indices: Sequence[Expr], var: Var) -> bool:
    """Whether consecutive values of `var` are consecutive elements of a buffer."""
    step: int | None = 1
    distance = 0
    for dim in reversed(range(len(indices))):
        if buffer.strides is not None:
            step = buffer.strides[dim]
        factor = coefficient(indices[dim], var)
        if factor is None or (factor and step is None):
            return False
        distance += factor * (step or 0)
        extent = int_value(buffer.shape[dim])
        step = None if step is None or extent is None else step * extent
    return distance == 1


def runs_along_last(indices: Sequence[Expr], var: Var) -> bool:
    """Whether `var` counts along the last dimension, and nothing else depends on it."""
    if not indices or any(var in free_vars(index) for index in indices[:-1]):
        return False
    return coefficient(indices[-1], var) == 1
