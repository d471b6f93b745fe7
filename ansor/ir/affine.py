"""Affine forms over interned atoms, and exact division of them by constants.

An integer expression is kept as `sum(coefficient * atom) + constant`. Atoms are numbered, one number per
distinct value: a variable, a quotient `base // b`, a remainder `(base // b) % m`, a product, or any other
node taken as it is. Quotients and remainders of one base are the pieces of a mixed-radix number, which is
what splitting and fusing loops produce; taking them apart (`divide`, `modulo`) and putting them together
again (`recombined`) is all the algebra that index expressions need.

Coefficients are exact integers, machine arithmetic is modulo 2**bits. Sums and products agree modulo
2**bits always; division and comparison need the form to equal the machine's value, which `fits` decides: a
form that may leave its dtype's range is not taken apart (see `ansor.ir.bounds` for what is assumed about
index variables).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import gcd, inf
from typing import Final

from ansor.dtypes import dtype_info, int_range
from ansor.ir.bounds import End, Interval, floor_divide, multiply
from ansor.te.expr import Binary, BinaryOp, Const, Expr, wrap_int

_MOST_FACTORS: Final = 64
"""Of a product that is taken apart: powers may have any number of them."""


class AtomKind(Enum):
    """How an atom was made."""

    PLAIN = 0
    QUOTIENT = 1
    REMAINDER = 2
    PRODUCT = 3


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """`sum(terms[atom] * atom) + const`; no coefficient is zero, terms are in order of first occurrence."""

    terms: dict[int, int]
    const: int

    def key(self) -> tuple[frozenset[tuple[int, int]], int]:
        """Equal for equal forms, whatever the order of their terms."""
        return frozenset(self.terms.items()), self.const


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """One indivisible value: its expression, its interval and how it was made.

    A quotient is `base // divisor`, a remainder `(base // divisor) % modulus`, a product that of `factors`.
    `index` tells whether the value is computed from index variables alone.
    """

    node: Expr
    low: End
    high: End
    index: bool
    kind: AtomKind = AtomKind.PLAIN
    base: Affine | None = None
    divisor: int = 1
    modulus: int = 0
    factors: tuple[int, ...] = ()


def constant(value: int) -> Affine:
    return Affine({}, value)


def scaled(a: Affine, factor: int) -> Affine:
    """`a * factor`."""
    if factor == 1:
        return a
    if factor == 0:
        return Affine({}, 0)
    return Affine({atom: c * factor for atom, c in a.terms.items()}, a.const * factor)


def add(a: Affine, b: Affine, factor: int = 1) -> Affine:
    """`a + b * factor`, without recombining quotients and remainders."""
    if not b.terms:
        return Affine(a.terms, a.const + b.const * factor) if b.const else a
    terms = dict(a.terms)
    for atom, coefficient in b.terms.items():
        total = terms.get(atom, 0) + coefficient * factor
        if total:
            terms[atom] = total
        else:
            del terms[atom]
    return Affine(terms, a.const + b.const * factor)


def reduced(a: Affine, dtype: str) -> Affine:
    """The form with its numbers brought near to the range of `dtype`: equal as the machine counts."""
    smallest, largest = int_range(dtype)
    span = largest - smallest + 1

    def near(value: int) -> int:
        if -largest <= value <= largest:
            return value
        return (value - smallest) % span + smallest

    numbers = {n: near(c) for n, c in a.terms.items()}
    return Affine({n: c for n, c in numbers.items() if c}, near(a.const))


def truncated(coefficient: int, divisor: int) -> tuple[int, int]:
    """Quotient towards zero and the remainder that goes with it."""
    if coefficient >= 0:
        return coefficient // divisor, coefficient % divisor
    return -(-coefficient // divisor), -(-coefficient % divisor)


class AtomTable:
    """The atoms met so far, and the arithmetic that makes new ones."""

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._interned: dict[object, int] = {}
        self._remainders: set[int] = set()
        self._nodes: dict[object, Expr] = {}
        self._sums: dict[int, Affine] = {}

    # -- atoms ---------------------------------------------------------------------------------------

    def intern(self, key: object, make: Atom) -> Affine:
        """The form of the atom known by `key`; `make` is recorded if there is none."""
        if make.low == make.high:
            return constant(int(make.low))
        number = self._interned.get(key)
        if number is None:
            number = len(self.atoms)
            self._interned[key] = number
            self.atoms.append(make)
            if make.kind is AtomKind.REMAINDER:
                self._remainders.add(number)
        return Affine({number: 1}, 0)

    def known(self, key: object) -> Affine | None:
        number = self._interned.get(key)
        return None if number is None else Affine({number: 1}, 0)

    # -- facts ---------------------------------------------------------------------------------------

    def interval(self, a: Affine) -> Interval:
        """An interval that contains the exact value of the form."""
        low: End = a.const
        high: End = a.const
        atoms = self.atoms
        for number, coefficient in a.terms.items():
            atom = atoms[number]
            if coefficient > 0:
                low += coefficient * atom.low
                high += coefficient * atom.high
            else:
                low += coefficient * atom.high
                high += coefficient * atom.low
        return low, high

    def is_index(self, a: Affine) -> bool:
        return all(self.atoms[number].index for number in a.terms)

    def fits(self, a: Affine, dtype: str) -> bool:
        """Whether the machine's value in `dtype` is the exact value of the form (nothing wraps)."""
        low, high = self.interval(a)
        smallest, largest = int_range(dtype)
        if smallest <= low and high <= largest:
            return True
        if (low < smallest and low != -inf) or (high > largest and high != inf):
            return False
        return self.is_index(a) and (low == -inf or low >= smallest) and dtype_info(dtype).bits >= 32

    def interval_in(self, a: Affine, dtype: str) -> Interval:
        """An interval that contains the machine's value of the form."""
        return self.interval(a) if self.fits(a, dtype) else int_range(dtype)

    # -- expressions ---------------------------------------------------------------------------------

    def build(self, a: Affine, dtype: str) -> Expr:
        """The canonical expression of the form; one object per form, order of terms and dtype."""
        if not a.const and len(a.terms) == 1:
            ((number, coefficient),) = a.terms.items()
            if coefficient == 1:
                return self.atoms[number].node
        key = (tuple(a.terms.items()), a.const, dtype)
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = self._build(a, dtype)
        return node

    def _build(self, a: Affine, dtype: str) -> Expr:
        def literal(value: int) -> Expr:
            return Const(wrap_int(value, dtype), dtype)

        def product(number: int, coefficient: int) -> Expr:
            node = self.atoms[number].node
            return node if coefficient == 1 else Binary(BinaryOp.MUL, node, literal(coefficient), dtype)

        a = reduced(a, dtype)
        if not a.terms:
            return literal(a.const)
        terms, rest = list(a.terms.items()), a.const
        lead = next((i for i, (_, c) in enumerate(terms) if c > 0), None)
        if lead is not None:
            result = product(*terms.pop(lead))
        elif rest > 0 or dtype_info(dtype).kind == "uint":
            result, rest = literal(max(rest, 0)), min(rest, 0)
        else:
            result = product(*terms.pop(0))
        for number, c in terms:
            op = BinaryOp.ADD if c > 0 else BinaryOp.SUB
            result = Binary(op, result, product(number, abs(c)), dtype)
        if rest:
            op = BinaryOp.ADD if rest > 0 else BinaryOp.SUB
            result = Binary(op, result, literal(abs(rest)), dtype)
        return result

    # -- sums ----------------------------------------------------------------------------------------

    def recombined(self, a: Affine, dtype: str) -> Affine:
        """`a` with `x//d*d + x%d` read as `x`, for every such pair of pieces of one base."""
        while not self._remainders.isdisjoint(a.terms):
            better = self._recombine_once(a, dtype) or self._expanded_once(a)
            if better is None:
                break
            a = better
        return a

    def _expanded_once(self, a: Affine) -> Affine | None:
        """`a` with a remainder read as `x//d - x//(d*m)*m`, where that leaves fewer quotients and remainders.

        The quotient need not look like one of the same base: that of `(2*i + j)//3%2` is `i//3`, if j < 2.
        """
        divisions = self._divisions(a)
        if divisions < 2:
            return None
        for number, coefficient in a.terms.items():
            atom = self.atoms[number]
            if atom.kind is not AtomKind.REMAINDER or atom.base is None:
                continue
            dtype, upper = atom.node.dtype, atom.divisor * atom.modulus
            if upper > int_range(dtype)[1]:
                continue
            other = add(a, Affine({number: 1}, 0), -coefficient)
            other = add(other, self.divide(atom.base, upper, dtype), -coefficient * atom.modulus)
            if self._divisions(other) > divisions - 2:
                continue
            other = add(other, self.divide(atom.base, atom.divisor, dtype), coefficient)
            if self._divisions(other) < divisions:
                return other
        return None

    def _divisions(self, a: Affine) -> int:
        """How many terms are quotients or remainders."""
        return sum(self.atoms[number].base is not None for number in a.terms)

    def _recombine_once(self, a: Affine, dtype: str) -> Affine | None:
        for number, coefficient in a.terms.items():
            atom = self.atoms[number]
            if atom.kind is not AtomKind.REMAINDER:
                continue
            assert atom.base is not None
            upper = atom.divisor * atom.modulus
            for other, factor in a.terms.items():
                partner = self.atoms[other]
                if factor != coefficient * atom.modulus or partner.base is None or partner.divisor != upper:
                    continue
                if partner.base is not atom.base and partner.base.key() != atom.base.key():
                    continue
                if partner.modulus * atom.modulus > int_range(dtype)[1]:
                    continue
                if partner.kind is AtomKind.QUOTIENT:
                    whole = self.divide(atom.base, atom.divisor, atom.node.dtype)
                else:
                    modulus = atom.modulus * partner.modulus
                    whole = self.remainder(atom.base, atom.divisor, modulus, atom.node.dtype)
                return self._replaced(a, number, other, scaled(whole, coefficient))
        return None

    @staticmethod
    def _replaced(a: Affine, one: int, two: int, by: Affine) -> Affine:
        """`a` without the terms `one` and `two`, `by` in the place of whichever came first."""
        result = Affine({}, a.const)
        placed = False
        for number, coefficient in a.terms.items():
            if number not in (one, two):
                result = add(result, Affine({number: coefficient}, 0))
            elif not placed:
                result, placed = add(result, by), True
        return result

    # -- products ------------------------------------------------------------------------------------

    def multiply(self, a: Affine, b: Affine, dtype: str) -> Affine:
        """`a * b`; products of sums of indices are multiplied out where that stays small.

        Those of data are kept: no form of them is of use to anyone, and it takes more operations.
        """
        if not b.terms:
            return scaled(a, b.const)
        if not a.terms:
            return scaled(b, a.const)
        parts = (len(a.terms) + bool(a.const)) * (len(b.terms) + bool(b.const))
        if parts > (6 if self.is_index(a) and self.is_index(b) else 1):
            (x,), (y,) = self.whole(a, dtype).terms, self.whole(b, dtype).terms
            return self._product_atom(x, y, dtype)
        result = constant(a.const * b.const)
        for x, cx in a.terms.items():
            for y, cy in b.terms.items():
                result = add(result, self._product_atom(x, y, dtype), cx * cy)
            result = add(result, Affine({x: cx * b.const}, 0)) if b.const else result
        if a.const:
            result = add(result, Affine(b.terms, 0), a.const)
        return result

    def whole(self, a: Affine, dtype: str) -> Affine:
        """A form as one atom, whose value is the machine's."""
        low, high = self.interval_in(a, dtype)
        result = self.intern(("sum", a.key(), dtype), Atom(self.build(a, dtype), low, high, self.is_index(a)))
        self._sums[next(iter(result.terms))] = a
        return result

    def opened(self, a: Affine) -> Affine:
        """`a` with atoms that stand for whole forms replaced by these: equal as the machine counts."""
        if self._sums.keys().isdisjoint(a.terms):
            return a
        result = constant(a.const)
        for number, coefficient in a.terms.items():
            result = add(result, self._sums.get(number, Affine({number: 1}, 0)), coefficient)
        return self.opened(result)

    def _product_atom(self, x: int, y: int, dtype: str) -> Affine:
        factors = tuple(sorted((*self.factors(x), *self.factors(y))))
        if len(factors) > _MOST_FACTORS:
            factors = (min(x, y), max(x, y))
        key = ("product", factors, dtype)
        known = self.known(key)
        if known is not None:
            return known
        a, b = self.atoms[x], self.atoms[y]
        low, high = multiply((a.low, a.high), (b.low, b.high))
        index = a.index and b.index
        smallest, largest = int_range(dtype)
        unknown = index and (low == -inf or low >= smallest) and (high == inf or high <= largest)
        if not unknown and (low < smallest or high > largest):
            low, high, index = smallest, largest, False
        node = Binary(BinaryOp.MUL, a.node, b.node, dtype)
        return self.intern(key, Atom(node, low, high, index, AtomKind.PRODUCT, factors=factors))

    def factors(self, number: int) -> tuple[int, ...]:
        return self.atoms[number].factors or (number,)

    # -- quotients and remainders ---------------------------------------------------------------------

    def divide(self, a: Affine, divisor: int, dtype: str) -> Affine:
        """`a // divisor`, for a positive constant and a form that fits `dtype`."""
        if divisor == 1:
            return a
        low, high = self.interval(a)
        if low != -inf and high != inf and low // divisor == high // divisor:
            return constant(int(low // divisor))
        outside, inside = self._split(a, divisor)
        if not inside.terms:
            return add(outside, constant(inside.const // divisor))
        if not self.fits(inside, dtype):
            return self._quotient_atom(a, divisor, dtype)
        low, high = self.interval(inside)
        if low != -inf and high != inf and low // divisor == high // divisor:
            return add(outside, constant(int(low // divisor)))
        for factor, multiple, _ in self._common_factors(inside, divisor):
            if self.fits(multiple, dtype):
                return add(outside, self.divide(multiple, divisor // factor, dtype))
        return self.recombined(add(outside, self._divide_atom(inside, divisor, dtype)), dtype)

    def _divide_atom(self, a: Affine, divisor: int, dtype: str) -> Affine:
        atom = self._piece(a)
        if atom is not None and atom.base is not None:
            whole = atom.divisor * divisor
            if atom.kind is AtomKind.QUOTIENT:
                base = add(atom.base, constant(a.const * atom.divisor))
                if whole <= int_range(dtype)[1] and self.fits(base, dtype):
                    return self.divide(base, whole, dtype)
            elif not a.const and atom.modulus % divisor == 0:
                return self.remainder(atom.base, whole, atom.modulus // divisor, dtype)
        return self._quotient_atom(a, divisor, dtype)

    def _piece(self, a: Affine) -> Atom | None:
        """The quotient or remainder of which `a` is the sum with a constant."""
        if len(a.terms) != 1:
            return None
        ((number, coefficient),) = a.terms.items()
        atom = self.atoms[number]
        return atom if coefficient == 1 and atom.base is not None else None

    def modulo(self, a: Affine, modulus: int, dtype: str) -> Affine:
        """`a % modulus`, for a positive constant and a form that fits `dtype`."""
        if modulus == 1:
            return constant(0)
        low, high = self.interval(a)
        if low != -inf and high != inf and low // modulus == high // modulus:
            return add(a, constant(-modulus * int(low // modulus)))
        _, inside = self._split(a, modulus)
        if not inside.terms:
            return constant(inside.const % modulus)
        if not self.fits(inside, dtype):
            return self._remainder_atom(a, 1, a, modulus, dtype)
        whole = self._without_remainders(inside, modulus)
        if whole is not inside and self.fits(whole, dtype):
            return self.modulo(whole, modulus, dtype)
        low, high = self.interval(inside)
        if low != -inf and high != inf and low // modulus == high // modulus:
            return add(inside, constant(-modulus * int(low // modulus)))
        for factor, multiple, rest in self._common_factors(inside, modulus):
            if self.fits(multiple, dtype):
                return add(scaled(self.modulo(multiple, modulus // factor, dtype), factor), rest)
        return self._modulo_atom(inside, modulus, dtype)

    def _without_remainders(self, a: Affine, modulus: int) -> Affine:
        """A form that differs by a multiple of `modulus`: of remainders by such, the sums they are of."""
        result = a
        for number, coefficient in a.terms.items():
            atom = self.atoms[number]
            if atom.kind is not AtomKind.REMAINDER or atom.divisor != 1 or atom.modulus % modulus:
                continue
            assert atom.base is not None
            if any(self.atoms[inner].base is not None for inner in atom.base.terms):
                continue  # of which there may be many more terms
            result = add(result, add(atom.base, Affine({number: 1}, 0), -1), coefficient)
        return result

    def _modulo_atom(self, a: Affine, modulus: int, dtype: str) -> Affine:
        atom = self._piece(a)
        if atom is not None and atom.base is not None:
            if atom.kind is AtomKind.QUOTIENT:
                base = add(atom.base, constant(a.const * atom.divisor))
                if self.fits(base, dtype):
                    return self.remainder(base, atom.divisor, modulus, dtype)
            elif not a.const and atom.modulus % modulus == 0:
                if atom.divisor == 1:  # Of a remainder, it may be, of which the same holds.
                    return self.modulo(atom.base, modulus, dtype)
                return self.remainder(atom.base, atom.divisor, modulus, dtype)
        return self.remainder(a, 1, modulus, dtype)

    @staticmethod
    def _split(a: Affine, divisor: int) -> tuple[Affine, Affine]:
        """`a = divisor * outside + inside`, as much as can be seen from coefficients."""
        outside: dict[int, int] = {}
        inside: dict[int, int] = {}
        for number, coefficient in a.terms.items():
            quotient, remainder = truncated(coefficient, divisor)
            if quotient:
                outside[number] = quotient
            if remainder:
                inside[number] = remainder
        return Affine(outside, a.const // divisor), Affine(inside, a.const % divisor)

    def _common_factors(self, a: Affine, divisor: int) -> list[tuple[int, Affine, Affine]]:
        """Ways to read `a = factor * multiple + rest`: `factor` divides `divisor`, `0 <= rest < factor`."""
        found: list[tuple[int, Affine, Affine]] = []
        for factor in sorted({gcd(c, divisor) for c in a.terms.values()} - {1}, reverse=True):
            multiple = {n: c // factor for n, c in a.terms.items() if c % factor == 0}
            rest = Affine({n: c for n, c in a.terms.items() if c % factor}, a.const % factor)
            low, high = self.interval(rest)
            if low >= 0 and high < factor:
                found.append((factor, Affine(multiple, a.const // factor), rest))
        return found

    def _quotient_atom(self, a: Affine, divisor: int, dtype: str) -> Affine:
        key = ("quotient", a.key(), divisor, dtype)
        known = self.known(key)
        if known is not None:
            return known
        low, high = floor_divide(self.interval(a), divisor)
        node = Binary(BinaryOp.FLOORDIV, self.build(a, dtype), Const(divisor, dtype), dtype)
        return self.intern(key, Atom(node, low, high, self.is_index(a), AtomKind.QUOTIENT, a, divisor))

    def remainder(self, base: Affine, divisor: int, modulus: int, dtype: str) -> Affine:
        """`(base // divisor) % modulus` as one atom, or as the quotient where the remainder does nothing."""
        low, high = floor_divide(self.interval(base), divisor)
        if low != -inf and high != inf and low // modulus == high // modulus:
            return add(self.divide(base, divisor, dtype), constant(-modulus * int(low // modulus)))
        quotient = self.divide(base, divisor, dtype)
        outside, _ = self._split(quotient, modulus)
        if outside.terms or outside.const or (divisor > 1 and self._piece(quotient) is None):
            return self.modulo(quotient, modulus, dtype)
        return self._remainder_atom(base, divisor, quotient, modulus, dtype)

    def _remainder_atom(
        self, base: Affine, divisor: int, quotient: Affine, modulus: int, dtype: str
    ) -> Affine:
        key = ("remainder", base.key(), divisor, modulus, dtype)
        known = self.known(key)
        if known is not None:
            return known
        limit = Const(modulus, dtype)
        node = Binary(BinaryOp.FLOORMOD, self.build(quotient, dtype), limit, dtype)
        atom = Atom(node, 0, modulus - 1, self.is_index(base), AtomKind.REMAINDER, base, divisor, modulus)
        return self.intern(key, atom)
