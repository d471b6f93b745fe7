"""Simplification of index arithmetic and conditions under known ranges of variables.

`simplify` puts integer expressions into the canonical form of `ansor.ir.affine`, decides comparisons by the
interval of the difference of their sides, folds logic, and works on the integer and boolean parts of value
expressions (indices of loads, conditions of selects); arithmetic on floats is left exactly as it is. The
result has the same value, of the same dtype, for all values of the variables in their bounds; the same
object comes back where nothing changes.

Each `Bounds` owns one `Simplifier`, which remembers every node it has seen, so that simplifying a program's
many similar indices costs little more than looking at each node once. Simplify everything under one
`Bounds` of all loop variables where that is possible.
"""

from __future__ import annotations

from ansor.dtypes import is_integer
from ansor.ir.bounds import (
    Bounds,
    OptionalInterval,
    to_optional,
)
from ansor.te.expr import (
    Const,
    Expr,
)
from ansor.te.structure import same_structure

__all__ = ["Bounds", "assume", "interval", "prove", "same_structure", "simplify"]


def simplify(expr: Expr, bounds: Bounds) -> Expr:
    """An expression equal to `expr` for all values within `bounds`, in canonical form."""
    result = bounds.simplifier.canonical(expr)
    return expr if result is expr or same_structure(result, expr) else result


def prove(cond: Expr, bounds: Bounds) -> bool | None:
    """True or False if `cond` has that value for all values within `bounds`, None if that is not seen."""
    result = bounds.simplifier.canonical(cond)
    return bool(result.value) if isinstance(result, Const) else None


def interval(expr: Expr, bounds: Bounds) -> OptionalInterval:
    """An interval of all values of an integer or bool expression; an end is None where none is known."""
    simplifier = bounds.simplifier
    if is_integer(expr.dtype):
        return to_optional(simplifier.range_of(simplifier.canonical(expr)))
    if expr.dtype == "bool":
        known = prove(expr, bounds)
        return (0, 1) if known is None else (int(known), int(known))
    return None, None


def assume(bounds: Bounds, cond: Expr, *, holds: bool = True) -> Bounds:
    """`bounds` narrowed by the knowledge that `cond` holds (or does not): what it says of single variables.

    The same object if nothing is learnt; also if `cond` cannot hold within the bounds.
    """
    simplifier = bounds.simplifier
    narrowed = simplifier.assuming(simplifier.canonical(cond), holds)
    return bounds if narrowed is None else narrowed
