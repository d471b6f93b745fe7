"""What a condition says of the values of single variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isinf

from ansor.ir.bounds import End, Interval
from ansor.ir.rewriting import NEGATED, operands
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Not, Var

RangeOf = Callable[[Expr], Interval]

Sum = tuple[Sequence[tuple[Expr, int]], int]
"""Nodes with their coefficients, and a constant."""

BelowZero = Callable[[Expr], Sum | None]
"""From a comparison to the sum that is negative exactly where it holds; None if it has none."""


def learn_ranges(cond: Expr, holds: bool, range_of: RangeOf, below_zero: BelowZero) -> dict[Var, Interval]:
    """The variables of which `cond`, in canonical form, tells more than `range_of` if it is `holds`.

    An interval that it gives is empty if the condition cannot have that value.
    """
    learner = _Learner(range_of, below_zero, {})
    learner.learn(cond, holds)
    return learner.found


@dataclass(frozen=True, slots=True)
class _Learner:
    range_of: RangeOf
    below_zero: BelowZero
    found: dict[Var, Interval]

    def learn(self, cond: Expr, holds: bool) -> None:
        """Take up what a canonical condition says of single index variables."""
        match cond:
            case Not(a=a):
                self.learn(a, not holds)
            case Binary(op=op) if op is (BinaryOp.AND if holds else BinaryOp.OR):
                for part in operands(cond, op):
                    self.learn(part, holds)
            case Binary(op=op, a=a, b=b) if op in NEGATED:
                op = op if holds else NEGATED[op]
                for order in (BinaryOp.LE, BinaryOp.GE) if op is BinaryOp.EQ else (op,):
                    self._learn_order(cond if order is cond.op else Binary(order, a, b, "bool"))

    def _learn_order(self, comparison: Expr) -> None:
        """Of `3*i + j >= 14` with `j < 3`: `i >= 4`, and with `i < 5`: `j >= 2`."""
        form = self.below_zero(comparison)
        if form is None:
            return
        terms, rest = form
        for node, coefficient in terms:
            least = rest + sum(self._least(other, c) for other, c in terms if other is not node)
            if isinf(least):
                continue
            most = -1 - int(least)  # Of `coefficient * node`.
            if coefficient > 0:
                self._learn_term(node, -inf, most // coefficient)
            else:
                self._learn_term(node, -(most // -coefficient), inf)

    def _learn_term(self, node: Expr, low: End, high: End) -> None:
        match node:
            case Var():
                self._narrow(node, low, high)
            case Binary(op=BinaryOp.FLOORDIV, a=Var() as var, b=Const(value=value)) if int(value) > 0:
                divisor = int(value)
                self._narrow(var, low * divisor, high * divisor + divisor - 1)

    def _least(self, node: Expr, coefficient: int) -> End:
        low, high = self._range(node)
        return coefficient * (low if coefficient > 0 else high)

    def _range(self, node: Expr) -> Interval:
        known = self.found.get(node) if isinstance(node, Var) else None
        return known or self.range_of(node)

    def _narrow(self, var: Var, low: End, high: End) -> None:
        before = self._range(var)
        after = max(before[0], low), min(before[1], high)
        if after != before:
            self.found[var] = after
