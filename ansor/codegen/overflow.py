"""Which arithmetic on variables may leave its dtype, and so is not that of indices, which is exact.

An axis times a large number may not fit int32, and then wraps, as all integers of te do. The ranges of loop
variables tell. Arithmetic on symbolic sizes is taken to fit, as in `ansor.ir.bounds`. Of data every number of
its dtype is possible.

What is divided or compared in an index wraps. The sums and products that address memory need not where they
leave their dtype by less than a turn, all the numbers of it: there they would wrap to an index out of bounds,
too. They wrap where they may turn, so that a row `U[i]*16` of data does, and `U[i]*16 + j` does not again.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ansor.dtypes import int_range, is_float, is_integer
from ansor.ir.bounds import Bounds, Interval, exceeds, hull, interval_of, to_interval
from ansor.ir.rewriting import reads_memory
from ansor.te.expr import Binary, BinaryOp, Cast, Const, Expr, Not, Select, Var, children

_SUMS: Final = frozenset((BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL))
_LONGEST: Final = 1 << 30
"""Elements along a dimension; of a longer one, those from here on are not reached by turns downwards."""


class Overflow:
    """Knows it of the expressions of one nest; `bounds` hold the nest's loop variables and sizes."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._known: dict[int, tuple[Expr, Interval, bool]] = {}
        self._reach: dict[int, tuple[Expr, Interval, bool]] = {}
        self._data: dict[int, tuple[Expr, bool]] = {}
        self._index: dict[int, tuple[Expr, bool]] = {}

    def may_wrap(self, expr: Expr) -> bool:
        """Whether an integer operation on the values of its operands may leave its dtype."""
        return self._look(expr)[2]

    def turns(self, expr: Expr) -> bool:
        """
        Whether an integer of an index may be so far outside of its dtype that it wraps to one in bounds.

        That is of what is below it in the index, wrapped only where it turns itself.
        """
        return self._reached(expr)[2]

    def interval(self, expr: Expr) -> Interval:
        """All values that an integer expression may have; ends may be infinite."""
        return self._look(expr)[1]

    def is_index(self, expr: Expr) -> bool:
        """
        Whether `expr` is integer arithmetic on variables and constants only, which does not wrap.

        A choice by what memory holds is none: the memory may be read under the conditions around it only.
        """
        known = self._index.get(id(expr))
        if known is None:  # the expression is kept, lest another gets its id
            known = self._index[id(expr)] = expr, self._is_index(expr)
        return known[1]

    def _is_index(self, expr: Expr) -> bool:
        if expr.dtype not in ("int32", "int64"):
            return False
        match expr:
            case Const() | Var():
                return True
            case Binary(a=a, b=b):
                return self.is_index(a) and self.is_index(b) and not self.may_wrap(expr)
            case Cast(a=a):
                return self.is_index(a) and not (a.dtype == "int64" and expr.dtype == "int32")
            case Select(cond=cond, then=then, other=other):
                return self.is_index(then) and self.is_index(other) and not reads_memory(cond)
            case _:
                return False

    def _look(self, expr: Expr) -> tuple[Expr, Interval, bool]:
        known = self._known.get(id(expr))
        if known is None:
            low, high = self._exact(expr)
            wraps = exceeds((low, high), expr.dtype)
            wraps = wraps or (not (low > -inf and high < inf) and self._is_data(expr))
            known = expr, int_range(expr.dtype) if wraps else (low, high), wraps
            self._known[id(expr)] = known
        return known

    def _reached(self, expr: Expr) -> tuple[Expr, Interval, bool]:
        """The values of an expression that wraps where it turns, and whether it does."""
        known = self._reach.get(id(expr))
        if known is None:
            known = self._reach[id(expr)] = expr, *self._reach_of(expr)
        return known

    def _reach_of(self, expr: Expr) -> tuple[Interval, bool]:
        (low, high), (smallest, largest) = self.interval(expr), int_range(expr.dtype)
        if not isinstance(expr, Binary) or expr.op not in _SUMS or not (low > -inf and high < inf):
            return (max(low, smallest), min(high, largest)), False
        turn = largest - smallest + 1
        found = interval_of(expr.op, self._reached(expr.a)[1], self._reached(expr.b)[1])
        if found is None or found[0] < _LONGEST - turn or found[1] >= turn:
            return (smallest, largest), True
        return found, False

    def _is_data(self, expr: Expr) -> bool:
        """Whether an expression depends on anything but variables."""
        known = self._data.get(id(expr))
        if known is None:
            plain = isinstance(expr, (Const, Var))
            made = isinstance(expr, (Binary, Cast, Select, Not)) and not is_float(expr.dtype)
            found = not plain and (not made or any(map(self._is_data, children(expr))))
            known = self._data[id(expr)] = expr, found
        return known[1]

    def _exact(self, expr: Expr) -> Interval:
        """The values that exact arithmetic gives."""
        match expr:
            case Const(value=value):
                return int(value), int(value)
            case Var():
                return to_interval(self.bounds[expr]) if expr in self.bounds else int_range(expr.dtype)
            case Cast(a=a) if is_integer(a.dtype):
                return self.interval(a)
            case Select(then=then, other=other):
                return hull(self.interval(then), self.interval(other))
            case Binary(op=op, a=a, b=b) if (
                found := interval_of(op, self.interval(a), self.interval(b))
            ) is not None:
                return found
            case _:
                return int_range(expr.dtype)
