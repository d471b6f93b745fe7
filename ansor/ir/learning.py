"""What a condition says of the values of single variables."""

from __future__ import annotations

from collections.abc import Callable

from ansor.dtypes import is_integer
from ansor.ir.bounds import Interval
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Not, Var

RangeOf = Callable[[Expr], Interval]

NEGATED = {
    BinaryOp.LT: BinaryOp.GE,
    BinaryOp.LE: BinaryOp.GT,
    BinaryOp.GT: BinaryOp.LE,
    BinaryOp.GE: BinaryOp.LT,
    BinaryOp.EQ: BinaryOp.NE,
    BinaryOp.NE: BinaryOp.EQ,
}
"""The comparison that holds where another one does not."""


def learn_ranges(cond: Expr, holds: bool, range_of: RangeOf) -> dict[Var, Interval]:
    """The variables of which `cond`, in canonical form, tells more than `range_of` if it is `holds`.

    An interval that it gives is empty if the condition cannot have that value.
    """
    found: dict[Var, Interval] = {}
    _learn(cond, holds, range_of, found)
    return found


def operands(expr: Expr, op: BinaryOp) -> tuple[Expr, ...]:
    """The operands of a chain of one logical operator."""
    if isinstance(expr, Binary) and expr.op is op:
        return (*operands(expr.a, op), *operands(expr.b, op))
    return (expr,)


def _learn(cond: Expr, holds: bool, range_of: RangeOf, found: dict[Var, Interval]) -> None:
    """Collect in `found` what a canonical condition says of single index variables."""
    match cond:
        case Not(a=a):
            _learn(a, not holds, range_of, found)
        case Binary(op=op) if op is (BinaryOp.AND if holds else BinaryOp.OR):
            for part in operands(cond, op):
                _learn(part, holds, range_of, found)
        case Binary(op=op, a=Var() as var, b=Const(value=value)) if op in NEGATED and is_integer(var.dtype):
            limit = int(value)
            low, high = found.get(var) or range_of(var)
            match op if holds else NEGATED[op]:
                case BinaryOp.LT:
                    high = min(high, limit - 1)
                case BinaryOp.LE:
                    high = min(high, limit)
                case BinaryOp.GT:
                    low = max(low, limit + 1)
                case BinaryOp.GE:
                    low = max(low, limit)
                case BinaryOp.EQ:
                    low, high = max(low, limit), min(high, limit)
                case _:
                    return
            if (low, high) != range_of(var):
                found[var] = (low, high)
        case _:
            return
