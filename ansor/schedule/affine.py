"""Intervals with affine lower ends: the arithmetic of bound inference.

An `Affine` is a linear form over *atoms* with constant (or column) coefficients. Atoms are loops, symbolic
sizes, and opaque quotients and remainders of other affine forms. An `Interval` is the set
`base, base + 1, .., base + width - 1`. Fixed atoms stay symbolic in `base`; relaxed ones are ranged over,
which widens the interval. Every operation gives a superset of the exact result and is exact in the cases
that tiling produces; coefficients and widths may be columns, so all of it works on whole populations.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Union

import numpy as np

from ansor.schedule.extents import (
    Extent,
    Number,
    greater,
    in_any_row,
    in_every_row,
    is_one,
    smaller,
    where,
)
from ansor.te.expr import BinaryOp, Expr, Var


@dataclass(frozen=True, slots=True)
class LoopAtom:
    """The loop called `name` of the stage at position `stage`."""

    stage: int
    name: str


@dataclass(frozen=True, slots=True)
class SizeAtom:
    """A symbolic size; it has the same value everywhere."""

    var: Var


@dataclass(frozen=True, slots=True)
class OpaqueAtom:
    """`inner // divisor` or `inner % divisor` of a form that could not be divided exactly."""

    op: BinaryOp
    inner: Affine = field(compare=False)
    divisor: Number = field(compare=False)
    key: Hashable = None


Atom = Union[LoopAtom, SizeAtom, OpaqueAtom]


def _key(value: Number) -> Hashable:
    return value.tobytes() if isinstance(value, np.ndarray) else int(value)


def _is_zero(value: Number) -> bool:
    return not value.any() if isinstance(value, np.ndarray) else value == 0


@dataclass(frozen=True, slots=True)
class Affine:
    """`const + sum(coefficient * atom)`."""

    const: Number = 0
    terms: Mapping[Atom, Number] = field(default_factory=dict)

    @classmethod
    def of_atom(cls, atom: Atom) -> Affine:
        return cls(0, {atom: 1})

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + coefficient
            if _is_zero(total):
                terms.pop(atom, None)
            else:
                terms[atom] = total
        return Affine(self.const + other.const, terms)

    def scale(self, factor: Number) -> Affine:
        if _is_zero(factor):
            return Affine()
        return Affine(self.const * factor, {a: c * factor for a, c in self.terms.items()})

    def __sub__(self, other: Affine) -> Affine:
        return self + other.scale(-1)

    def shift(self, amount: Number) -> Affine:
        return Affine(self.const + amount, self.terms)

    def key(self) -> Hashable:
        """Equal for forms that are term by term the same."""
        return _key(self.const), frozenset((atom, _key(c)) for atom, c in self.terms.items())

    @property
    def is_constant(self) -> bool:
        return not self.terms


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers `base .. base + width - 1`; `width` may be symbolic only when `base` is 0.

    With `around` it is a region of an axis that goes around the end of it: what is beyond one end counts from
    the other. That may be so of some rows of a column only.
    """

    base: Affine
    width: Extent
    around: Any = False

    @classmethod
    def point(cls, base: Affine) -> Interval:
        return cls(base, 1)

    @classmethod
    def full(cls, extent: Extent) -> Interval:
        return cls(Affine(), extent)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.base + other.base, _add_widths(self.width, other.width))

    def scale(self, factor: Number) -> Interval:
        """All elements times `factor`, and what lies between them."""
        if _is_point(self.width):
            return Interval(self.base.scale(factor), 1)
        span: Any = self.width - 1
        if isinstance(span, Expr):
            raise UnknownBoundError
        low = np.minimum(factor, 0) if isinstance(factor, np.ndarray) else min(factor, 0)
        return Interval(self.base.scale(factor).shift(low * span), abs(factor) * span + 1)

    def clip(self, extent: Extent) -> Interval:
        """This interval, known to be used only within `0 .. extent - 1`."""
        if isinstance(extent, Expr):
            return Interval.full(extent) if isinstance(self.width, Expr) else self
        if isinstance(self.width, Expr):
            return Interval.full(extent)
        if self.base.is_constant:
            low = greater(self.base.const, 0)
            high = smaller(self.base.const + self.width, extent)
            return Interval(Affine(low), greater(high - low, 1))
        whole = self.width >= extent
        if isinstance(whole, np.ndarray):
            keep = (~whole).astype(np.int64)
            return Interval(self.base.scale(keep), np.minimum(self.width, extent))
        return Interval.full(extent) if whole else self


class UnknownBoundError(Exception):
    """An expression is not an interval of the known kind; its whole range has to be assumed."""


def _is_point(width: Extent) -> bool:
    return isinstance(width, int) and width == 1


def _add_widths(a: Extent, b: Extent) -> Extent:
    if _is_point(a):
        return b
    if _is_point(b):
        return a
    total: Any = a + b - 1  # type: ignore[operator]
    return total  # type: ignore[no-any-return]


def _gcd(values: list[Number]) -> Number:
    result: Any = 0
    for value in values:
        if isinstance(value, np.ndarray) or isinstance(result, np.ndarray):
            result = np.gcd(result, value)
        else:
            result = gcd(result, value)
    return result  # type: ignore[no-any-return]


def _opaque(op: BinaryOp, inner: Affine, divisor: Number) -> Affine:
    return Affine.of_atom(OpaqueAtom(op, inner, divisor, (op, inner.key(), _key(divisor))))


def with_known_width(interval: Interval) -> tuple[Affine, Any]:
    """The lower end and the width of an interval; an `UnknownBoundError` if that is symbolic."""
    if isinstance(interval.width, Expr):
        raise UnknownBoundError
    return interval.base, interval.width


def floordiv(interval: Interval, divisor: Number) -> Interval:
    """All elements divided by `divisor >= 1`, rounding down.

    With g = gcd(coefficients, divisor) the base is congruent to `const` modulo g, so its largest possible
    remainder is known; g = divisor makes the result exact.
    """
    if isinstance(divisor, int) and divisor == 1:
        return interval
    base, width = with_known_width(interval)
    multiple = _gcd([*base.terms.values(), divisor])
    remainder = base.const % multiple + divisor - multiple
    span = (remainder + width - 1) // divisor + 1
    exact = multiple == divisor
    if in_every_row(exact):
        quotient = Affine(base.const // divisor, {a: c // divisor for a, c in base.terms.items()})
    else:
        quotient = _opaque(BinaryOp.FLOORDIV, base, divisor)
    return Interval(quotient, span)


def floormod(interval: Interval, divisor: Number) -> Interval:
    """The remainders of all elements modulo `divisor >= 1`."""
    base, width = with_known_width(interval)
    multiple = _gcd([*base.terms.values(), divisor])
    remainder = base.const % multiple
    stays = remainder + width <= multiple
    if not in_any_row(stays):
        return Interval.full(divisor)
    exact = multiple == divisor
    rest = Affine(remainder) if in_every_row(exact) else _opaque(BinaryOp.FLOORMOD, base, divisor)
    if in_every_row(stays):
        return Interval(rest, width)
    return Interval(rest.scale(np.asarray(stays).astype(np.int64)), where(stays, width, divisor))


LoopExtents = Callable[[LoopAtom], Extent]


def relax(form: Affine, is_fixed: Callable[[Atom], bool], extent: LoopExtents) -> Interval:
    """The values of `form` while the loops that are not fixed run over their extents."""
    result = Interval.point(Affine(form.const))
    for atom, coefficient in form.terms.items():
        if isinstance(atom, SizeAtom):
            part = Interval.point(Affine.of_atom(atom))
        elif isinstance(atom, LoopAtom):
            part = Interval.point(Affine.of_atom(atom)) if is_fixed(atom) else Interval.full(extent(atom))
        else:
            inner = relax(atom.inner, is_fixed, extent)
            if _is_point(inner.width):
                part = Interval.point(Affine.of_atom(atom))
            else:
                divide = floordiv if atom.op is BinaryOp.FLOORDIV else floormod
                part = divide(inner, atom.divisor)
        result = result + (part if _is_one(coefficient) else part.scale(coefficient))
    return result


def _is_one(value: Number) -> bool:
    return not isinstance(value, np.ndarray) and value == 1


def union(a: Interval, b: Interval, extent: LoopExtents) -> Interval:
    """The smallest interval of this kind that holds both.

    Atoms on which the two lower ends disagree are ranged over.
    """
    differing = set((b.base - a.base).terms)
    if differing:
        if any(isinstance(atom, SizeAtom) for atom in differing):
            raise UnknownBoundError
        a = _relax_atoms(a, differing, extent)
        b = _relax_atoms(b, differing, extent)
        if set((b.base - a.base).terms):
            raise UnknownBoundError
    offset = b.base.const - a.base.const
    if isinstance(a.width, Expr) or isinstance(b.width, Expr):
        if _is_zero(offset) and str(a.width) == str(b.width):
            return a
        raise UnknownBoundError
    low = smaller(offset, 0)
    high = greater(a.width, offset + b.width)
    return Interval(a.base.shift(low), high - low)


def chosen(rows: Any, a: Interval, b: Interval) -> Interval:
    """`a` in those rows, `b` in the others; both of known width where rows differ."""
    if in_every_row(rows):
        return a
    if not in_any_row(rows):
        return b
    some = np.asarray(rows).astype(np.int64)
    base = a.base.scale(some) + b.base.scale(1 - some)
    return Interval(base, where(rows, with_known_width(a)[1], with_known_width(b)[1]))


def _relax_atoms(interval: Interval, atoms: set[Atom], extent: LoopExtents) -> Interval:
    kept = Affine(interval.base.const, {a: c for a, c in interval.base.terms.items() if a not in atoms})
    moved = Affine(0, {a: c for a, c in interval.base.terms.items() if a in atoms})
    loose = relax(moved, lambda atom: False, extent)
    return Interval(kept, interval.width) + loose


def divided(form: Affine, divisor: Number, extent: LoopExtents) -> tuple[Affine, Affine] | None:
    """Quotient and remainder of a form whose loops run over their extents; None if they are not seen.

    They are where the terms that the divisor does not divide never add up to it: what the innermost loops of
    a tile make of `16*i + j`.
    """
    rest = {a: c for a, c in form.terms.items() if in_any_row(c % divisor != 0)}
    remainder = Affine(form.const % divisor, rest)
    ends = ends_of(remainder, extent)
    if ends is None or in_any_row(ends[0] < 0) or in_any_row(ends[1] >= divisor):
        return None
    quotient = {a: c // divisor for a, c in form.terms.items() if a not in rest}
    return Affine(form.const // divisor, quotient), remainder


def joined(form: Affine) -> Affine:
    """The same form with digits put together: `x // d * d + x % d` is `x`, and so for more digits."""
    result = Affine(form.const)
    for atom, coefficient in form.terms.items():
        unit, whole = _by_remainders(atom) if isinstance(atom, OpaqueAtom) else (1, Affine.of_atom(atom))
        if in_any_row(coefficient % unit != 0):
            unit, whole = 1, Affine.of_atom(atom)
        result = result + whole.scale(coefficient // unit)
    return result


def _by_remainders(atom: OpaqueAtom) -> tuple[Number, Affine]:
    """A number, and that many times a digit as remainders of what it is a digit of.

    `d * (x // d) = x - x % d` and `d * (x // d % e) = x % (d * e) - x % d`.
    """
    if atom.op is BinaryOp.FLOORDIV:
        return atom.divisor, joined(atom.inner) - _remainder(atom.inner, atom.divisor)
    x, divisor = _dividend(atom.inner)
    return divisor, _remainder(x, divisor * atom.divisor) - _remainder(x, divisor)


def _dividend(form: Affine) -> tuple[Affine, Number]:
    """What a form is a quotient of, and the divisor: itself, and 1, if it is none."""
    match list(form.terms.items()):
        case [(OpaqueAtom(op=BinaryOp.FLOORDIV) as atom, factor)] if is_one(factor) and _is_zero(form.const):
            return atom.inner, atom.divisor
        case _:
            return form, 1


def _remainder(form: Affine, divisor: Number) -> Affine:
    return Affine() if is_one(divisor) else _opaque(BinaryOp.FLOORMOD, form, divisor)


def ends_of(form: Affine, extent: LoopExtents) -> tuple[Any, Any] | None:
    """The least and the greatest value of a form while its loops run over their extents."""
    low: Any = form.const
    high: Any = form.const
    for atom, coefficient in form.terms.items():
        own = _ends_of_atom(atom, extent)
        if own is None:
            return None
        ends = own[0] * coefficient, own[1] * coefficient
        low = low + smaller(*ends)
        high = high + greater(*ends)
    return low, high


def _ends_of_atom(atom: Atom, extent: LoopExtents) -> tuple[Any, Any] | None:
    match atom:
        case LoopAtom():
            length: Any = extent(atom)
            return None if isinstance(length, Expr) else (0, length - 1)
        case OpaqueAtom(op=BinaryOp.FLOORMOD, divisor=divisor):
            return 0, divisor - 1
        case OpaqueAtom(inner=inner, divisor=divisor):
            ends = ends_of(inner, extent)
            return None if ends is None else (ends[0] // divisor, ends[1] // divisor)
        case _:
            return None
