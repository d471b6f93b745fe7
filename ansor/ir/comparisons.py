"""Comparisons of integers with zero: decided by intervals, or brought into canonical form.

Both sides of a comparison are exact affine forms (`ansor.ir.affine`), so it asks whether their difference is
negative, or zero. What the interval of the difference does not decide becomes `P < Q`, `P <= Q`, `P >= c`,
`P == Q` or `P != Q` over sums with positive coefficients, divided by what their coefficients have in common,
and without quotients where these stand alone.
"""

from __future__ import annotations

from math import gcd
from typing import Final

from ansor.ir.affine import Affine, AtomKind, AtomTable, add, constant, scaled
from ansor.te.expr import BinaryOp

Sides = bool | tuple[BinaryOp, Affine, Affine]
"""A comparison that is decided, or an operator and what it compares."""

ORDER: Final = (BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE)
"""Those that ask which is greater."""


def compared(table: AtomTable, op: BinaryOp, difference: Affine, dtype: str) -> Sides:
    """`difference OP 0`, for a form that is the exact difference of two integers of `dtype`."""
    form = below_zero(op, difference)
    return _equality(table, op, difference) if form is None else _order(table, form, dtype)


def below_zero(op: BinaryOp, difference: Affine) -> Affine | None:
    """The form that is negative exactly where `difference OP 0` holds; None if that is no order."""
    if op not in ORDER:
        return None
    form = difference if op in (BinaryOp.LT, BinaryOp.LE) else scaled(difference, -1)
    return add(form, constant(-1)) if op in (BinaryOp.LE, BinaryOp.GE) else form


def _order(table: AtomTable, form: Affine, dtype: str) -> Sides:
    """`form < 0`."""
    while True:
        low, high = table.interval(form)
        if high < 0:
            return True
        if low >= 0:
            return False
        other = _coarser(table, form) or _undivided(table, form, dtype)
        if other is None:
            break
        form = other
    positive = Affine({n: c for n, c in form.terms.items() if c > 0}, 0)
    negative = Affine({n: -c for n, c in form.terms.items() if c < 0}, 0)
    if not negative.terms:
        return BinaryOp.LT, positive, constant(-form.const)
    if not positive.terms:
        return BinaryOp.GE, negative, constant(form.const + 1)
    if form.const == -1:
        return BinaryOp.LE, positive, negative
    if form.const > 0:
        return BinaryOp.LT, add(positive, constant(form.const)), negative
    return BinaryOp.LT, positive, add(negative, constant(-form.const))


def _undivided(table: AtomTable, form: Affine, dtype: str) -> Affine | None:
    """`form < 0` without one of its quotients: `x//d < r` is `x < d*r`, `x//d > r` is `x >= d*r + d`."""
    for number, coefficient in form.terms.items():
        atom = table.atoms[number]
        if atom.kind is not AtomKind.QUOTIENT or abs(coefficient) != 1 or atom.base is None:
            continue
        rest = Affine({n: c for n, c in form.terms.items() if n != number}, form.const)
        whole = add(scaled(rest, atom.divisor), atom.base, coefficient)
        if coefficient < 0:
            whole = add(whole, constant(atom.divisor - 1))
        whole = table.recombined(whole, dtype)
        if table.fits(whole, dtype):
            return whole
    return None


def _coarser(table: AtomTable, form: Affine) -> Affine | None:
    """`form < 0` divided by a coefficient, where the terms it does not divide cannot matter."""
    factors = {abs(c) for c in form.terms.values()} | {gcd(*form.terms.values())}
    for factor in sorted(factors - {0, 1}, reverse=True):
        rest = Affine({n: c for n, c in form.terms.items() if c % factor}, 0)
        low, high = table.interval(rest)
        if high - low >= factor:
            continue
        # factor*s + (rest - low) < factor*quotient + remainder, where 0 <= rest - low < factor
        quotient, remainder = divmod(-form.const - int(low), factor)
        multiple = {n: c // factor for n, c in form.terms.items() if c % factor == 0}
        if remainder == 0:
            return Affine(multiple, -quotient)
        if high - low < remainder:
            return Affine(multiple, -quotient - 1)
    return None


def _equality(table: AtomTable, op: BinaryOp, form: Affine) -> Sides:
    """`form == 0`, or `!=`."""
    low, high = table.interval(form)
    different = low > 0 or high < 0
    common = gcd(*form.terms.values())
    if different or (common and form.const % common):
        return op is BinaryOp.NE
    if low == high == 0:
        return op is BinaryOp.EQ
    if next(iter(form.terms.values())) < 0:
        common = -common
    terms = {n: c // common for n, c in form.terms.items()}
    const = form.const // common
    left = Affine({n: c for n, c in terms.items() if c > 0}, max(const, 0))
    right = Affine({n: -c for n, c in terms.items() if c < 0}, max(-const, 0))
    if not right.terms:
        left, right = Affine(left.terms, 0), constant(-const)
    return op, left, right
