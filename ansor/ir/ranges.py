"""The values that the variables of a nest may have."""

from __future__ import annotations

from collections.abc import Mapping

from ansor.ir.bounds import Bounds, OptionalInterval
from ansor.ir.nest import For, LoopNest, Stmt, walk_statements
from ansor.te.expr import Var, int_value


def loop_ranges(stmt: Stmt) -> dict[Var, OptionalInterval]:
    """The ranges of all loop variables of `stmt` (an empty loop counts as one iteration)."""
    ranges: dict[Var, OptionalInterval] = {}
    for inner in walk_statements(stmt):
        if isinstance(inner, For):
            extent = int_value(inner.extent)
            ranges[inner.var] = (0, None if extent is None else max(extent - 1, 0))
    return ranges


def nest_bounds(nest: LoopNest, sizes: Mapping[Var, int] | None = None) -> Bounds:
    """Bounds of all variables of a nest; symbolic sizes are not negative, or as given."""
    known = sizes or {}
    ranges = loop_ranges(nest.body)
    for size in nest.sizes:
        ranges[size] = (known[size], known[size]) if size in known else (0, None)
    return Bounds(ranges)
