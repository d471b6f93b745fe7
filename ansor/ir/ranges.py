"""The values that the variables of a nest may have."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ansor.dtypes import is_integer
from ansor.ir.bounds import Bounds, OptionalInterval
from ansor.ir.nest import For, Let, LoopNest, Stmt, walk_statements
from ansor.ir.rewriting import reads_memory
from ansor.te.expr import Expr, Var, free_vars, int_value


def loop_ranges(stmt: Stmt) -> dict[Var, OptionalInterval]:
    """The ranges of all loop variables of `stmt` (an empty loop counts as one iteration).

    Also of variables that stand for integers which do not depend on data, with unknown ends.
    """
    ranges: dict[Var, OptionalInterval] = {}
    data: set[Var] = set()
    for inner in walk_statements(stmt):
        if isinstance(inner, For):
            extent = int_value(inner.extent)
            ranges[inner.var] = (0, None if extent is None else max(extent - 1, 0))
        elif isinstance(inner, Let) and _is_index(inner.value, data):
            ranges[inner.var] = (None, None)
        elif isinstance(inner, Let):
            data.add(inner.var)
    return ranges


def _is_index(value: Expr, data: Collection[Var]) -> bool:
    """Whether a value is an integer that depends on neither memory nor variables that stand for data."""
    return is_integer(value.dtype) and not reads_memory(value) and free_vars(value).isdisjoint(data)


def nest_bounds(nest: LoopNest, sizes: Mapping[Var, int] | None = None) -> Bounds:
    """Bounds of all variables of a nest; symbolic sizes are not negative, or as given."""
    known = sizes or {}
    ranges = loop_ranges(nest.body)
    for size in nest.sizes:
        ranges[size] = (known[size], known[size]) if size in known else (0, None)
    return Bounds(ranges)
