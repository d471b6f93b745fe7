"""The floating-point operations of a graph: what GFLOP/s and throughput labels are measured against.

The count is that of the expression as written, not of any schedule of it, so a schedule that recomputes
shows as slower, never as busier. The rules (those of TVM's auto_scheduler, so that logs compare):

- an operation costs the product of its spatial extents times the cost of its body, or its attribute "FLOP";
- a reduction costs the product of its reduction extents times (combiner + source, for each output);
- an arithmetic, min/max, comparison or logical node costs 1 if an operand is of the kind (float, integer,
  bool) that the operation computes, so index arithmetic is free inside a float operation (signed and
  unsigned integers are one kind here, two in TVM);
- `select` costs its condition and the dearer branch; reads, casts, constants and variables are free, and so
  are intrinsics themselves: only their arguments are counted (`if_then_else` is such a call);
- a symbolic extent makes the count unknown, which is written -1.

What the outputs of one reduction share is counted once. A count of 0 is possible: transposes only move data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from ansor.depth import with_depth
from ansor.dtypes import dtype_info
from ansor.errors import DefinitionError
from ansor.schedule.access import body_roots, constant_extents
from ansor.te.expr import Binary, Call, Cast, Expr, Not, Reduce, Select
from ansor.te.tensor import ComputeOp, Operation

UNKNOWN_FLOPS = -1.0
FLOP_ATTR = "FLOP"


def count_flops(ops: Sequence[Operation]) -> float:
    """The floating-point (or integer) operations of all `ops` together [flop]; -1 if a size is symbolic."""
    total = 0.0
    for op in ops:
        if isinstance(op, ComputeOp):
            count = op_flops(op)
            if count is None:
                return UNKNOWN_FLOPS
            total += count
    return total


def op_flops(op: ComputeOp) -> float | None:
    """The operations of one compute operation [flop]; None if a size is symbolic.

    Raises
    ------
    DefinitionError
        If they are more than a float counts.
    """
    try:
        return _op_flops(op)
    except OverflowError:
        raise DefinitionError(
            f"compute {op.name!r}: its operations are more than a float counts; make it smaller, or give "
            f"a number that a float holds as {FLOP_ATTR!r} among its attrs"
        ) from None


def _op_flops(op: ComputeOp) -> float | None:
    given = op.attrs.get(FLOP_ATTR)
    if given is not None:
        return float(given)
    extents = constant_extents(op.axis)
    if extents is None:
        return None
    counter = _BodyCounter(_class(op.output(0).dtype))
    per_element = 0.0
    for root in body_roots(op):
        count = with_depth(partial(counter.root, root))
        if count is None:
            return None
        per_element += count
    return prod(extents) * per_element


def _class(dtype: str) -> str:
    """The kind of a dtype for counting."""
    kind = dtype_info(dtype).kind
    return "int" if kind == "uint" else kind


class _BodyCounter:
    """Counts nodes of one kind; a shared sub-expression is visited once and counted each time it occurs."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._memo: dict[Expr, float] = {}

    def root(self, expr: Expr) -> float | None:
        if not isinstance(expr, Reduce):
            return self.count(expr)
        extents = constant_extents(expr.axes)
        if extents is None:
            return None
        bodies = (*expr.combiner.result, *expr.sources)
        return prod(extents) * sum(self.count(body) for body in bodies)

    def count(self, expr: Expr) -> float:
        if expr not in self._memo:
            self._memo[expr] = self._count(expr)
        return self._memo[expr]

    def _count(self, expr: Expr) -> float:
        match expr:
            case Binary(a=a, b=b):
                own = self._kind in (_class(a.dtype), _class(b.dtype))
                return own + self.count(a) + self.count(b)
            case Not(a=a):
                return (self._kind == _class(a.dtype)) + self.count(a)
            case Cast(a=a):
                return self.count(a)
            case Select(cond=cond, then=then, other=other, lazy=lazy):
                sides = (self.count(then), self.count(other))
                return self.count(cond) + (sum(sides) if lazy else max(sides))
            case Call(args=args):
                return sum(self.count(arg) for arg in args)
            case _:
                return 0.0
