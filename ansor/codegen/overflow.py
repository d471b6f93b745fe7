"""Which arithmetic on variables may leave its dtype, and so is not that of indices, which is exact.

An axis times a large number may not fit int32, and then wraps, as all integers of te do. The ranges of loop
variables tell. Arithmetic on symbolic sizes is taken to fit, as in `ansor.ir.bounds`, and so are the sums and
products that address memory: an index that left its dtype would be out of bounds anyway. What is divided or
compared in an index wraps, and so does an index that is seen to count too far: a value that was inlined.
Of data every number of its dtype is possible.
"""

from __future__ import annotations

from math import inf

from ansor.dtypes import int_range, is_float, is_integer
from ansor.ir.bounds import Bounds, Interval, exceeds, hull, interval_of, to_interval
from ansor.ir.rewriting import reads_memory
from ansor.te.expr import Binary, Cast, Const, Expr, Not, Select, Var, children, free_vars


class Overflow:
    """Knows it of the expressions of one nest; `bounds` hold the nest's loop variables and sizes."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._known: dict[int, tuple[Expr, Interval, bool]] = {}
        self._data: dict[int, tuple[Expr, bool]] = {}
        self._index: dict[int, tuple[Expr, bool]] = {}

    def may_wrap(self, expr: Expr) -> bool:
        """Whether an integer operation on the values of its operands may leave its dtype."""
        return self._look(expr)[2]

    def index_wraps(self, index: Expr) -> bool:
        """Whether an index of loop variables and sizes may leave its dtype, and so has to be wrapped."""
        if not self.may_wrap(index) or self._is_data(index):
            return False
        return all(var in self._bounds for var in free_vars(index))

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
                return to_interval(self._bounds[expr]) if expr in self._bounds else int_range(expr.dtype)
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
