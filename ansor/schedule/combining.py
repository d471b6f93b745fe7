"""Taking values into the elements of a reduction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ansor.errors import LoweringError
from ansor.ir.bounds import Bounds
from ansor.ir.nest import Buffer, Stmt, Store
from ansor.ir.rewriting import simultaneous
from ansor.ir.simplify import simplify
from ansor.te.expr import Expr, Load, Reduce, Var, rewrite

Targets = Sequence[tuple[Buffer, tuple[Expr, ...]]]
"""The elements that the outputs of a reduction are stored to, one for each."""


def combined(roots: Sequence[Reduce], targets: Targets, values: Sequence[Expr], bounds: Bounds) -> Stmt:
    """
    Combine values with what elements hold, and store the results there.

    Parameters
    ----------
    roots
        The reduction's expressions, one per target.
    values
        One for each argument of the combiner.
    bounds
        Of the variables in targets and values.
    """
    combiner = roots[0].combiner
    mapping: dict[Var, Expr] = dict(zip(combiner.rhs, values, strict=True))
    by_index = {root.index: target for root, target in zip(roots, targets, strict=True)}
    for index, var in enumerate(combiner.lhs):
        if index not in by_index:
            raise LoweringError(f"output {index} of a multi-output reduction is not stored")
        buffer, indices = by_index[index]
        mapping[var] = Load(buffer, indices, buffer.dtype)
    results = [simplify(_replaced(combiner.result[root.index], mapping), bounds) for root in roots]
    return simultaneous([Store(b, i, v) for (b, i), v in zip(targets, results, strict=True)])


def _replaced(expr: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """Variables replaced without any folding (float arithmetic stays as written)."""

    def visit(node: Expr) -> Expr | None:
        return mapping.get(node) if isinstance(node, Var) else None

    return rewrite(expr, visit)
