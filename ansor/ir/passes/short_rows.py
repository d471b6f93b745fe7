"""Rows that are too short for a vector and lie end to end in memory: one loop over all their elements.

    for x in 0..20:                                      for f in 0..60:
      vectorize c in 0..3:                        =>       B[y, f // 3, f % 3] = A[y, f // 3 + 1, f % 3] * 2
        B[y, x, c] = A[y, x + 1, c] * 2

The innermost loop and the one around it are joined where whatever is stored, and whatever is read that is not
the same for all iterations, lies end to end, too; then that one and the next, as long as rows are too short.
The vectors of the new loop are left to `ansor.ir.passes.vectorize`. A schedule that makes a vector of a short
loop gets longer ones than it asks for, with the same elements.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ansor.ir.accesses import accesses_of
from ansor.ir.bounds import Bounds
from ansor.ir.independence import IndependenceTest
from ansor.ir.nest import Alloc, For, LoopKind, Stmt, Store, walk_statements
from ansor.ir.passes.vectorize import lanes_for
from ansor.ir.rewriting import map_expressions, map_statements, replace_in
from ansor.ir.strides import runs_along
from ansor.te.expr import (
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Expr,
    Load,
    Select,
    Var,
    children,
    const,
    free_vars,
    int_value,
)

_INNER_KINDS = frozenset({LoopKind.SERIAL, LoopKind.VECTORIZED})


def longest_joined(lanes: Any, chooses: Any) -> Any:
    """How many elements rows may have to be joined, at most, where a vector has `lanes`.

    Where values choose, which longer vectors do for more pixels together, that is less than half a vector.
    Numbers, or columns of them.
    """
    return lanes - 1 - chooses * (lanes // 2)


def join_short_rows(
    stmt: Stmt, vector_bits: int, bounds: Bounds, own: Collection[Var]
) -> tuple[Stmt, Bounds]:
    """`stmt` with its short innermost loops joined with those around them, and the bounds of all variables.

    `bounds` hold every loop variable of `stmt` and around it; only loops over variables of `own` are joined.
    """
    joining = _Joining(vector_bits, bounds, own)
    return joining.visit(stmt), joining.bounds


@dataclass
class _Joining:
    bits: int
    bounds: Bounds
    own: Collection[Var]

    def visit(self, stmt: Stmt) -> Stmt:
        stmt = map_statements(stmt, self.visit)
        return self._joined(stmt) or stmt if isinstance(stmt, For) else stmt

    def _joined(self, outer: For) -> For | None:
        """The loop over all iterations of two, if these are to be joined."""
        inner, serial = outer.body, outer.kind is LoopKind.SERIAL and outer.var in self.own
        if not serial or not isinstance(inner, For) or inner.kind not in _INNER_KINDS:
            return None
        inside = list(walk_statements(inner.body))
        stores = [one for one in inside if isinstance(one, Store)]
        count, length = int_value(outer.extent), int_value(inner.extent)
        if not stores or count is None or length is None:
            return None
        longest = longest_joined(lanes_for(stores, self.bits), any(_chooses(store.value) for store in stores))
        if length > longest or any(isinstance(one, (For, Alloc)) for one in inside):
            return None
        var, row = Var(f"{outer.var.name}.{inner.var.name}", outer.var.dtype), const(length)
        place: dict[Var, Expr] = {
            outer.var: Binary(BinaryOp.FLOORDIV, var, row, INDEX_DTYPE),
            inner.var: Binary(BinaryOp.FLOORMOD, var, row, INDEX_DTYPE),
        }
        body = map_expressions(inner.body, lambda expr: replace_in(expr, place, {}))
        loop = For(var, count * length, LoopKind.SERIAL, body)
        known = self.bounds.extended({var: (0, count * length - 1)})
        if not _runs_along(loop, known) or not IndependenceTest(known).independent(loop):
            return None
        self.bounds, self.own = known, {*self.own, var}
        return loop


def _chooses(value: Expr) -> bool:
    """Whether a value is chosen of several; where it is read does not matter."""
    pending, seen = [value], set[int]()
    while pending:
        node = pending.pop()
        if isinstance(node, Select):
            return True
        if id(node) not in seen and not isinstance(node, Load):
            seen.add(id(node))
            pending.extend(children(node))
    return False


def _runs_along(loop: For, bounds: Bounds) -> bool:
    """Whether iterations store element after element, and load so what is not the same for all of them."""
    found = accesses_of(loop.body)
    touched = [(buffer, indices) for buffer, written in found.writes.items() for indices in written]
    for buffer, read in found.reads.items():
        touched += [(buffer, indices) for indices in read if loop.var in free_vars(*indices)]
    return all(runs_along(buffer, indices, loop.var, bounds) for buffer, indices in touched)
