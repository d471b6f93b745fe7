"""Index arithmetic while code is written: affine forms over SSA names, with intervals.

An index is a Python-side `Affine`: an integer constant plus integer multiples of atoms. An atom is an i64 SSA
value (a loop counter, a quotient, a loaded index) or the lane number of the vector loop being written, with
the interval of its values. Nothing is emitted until an address, a comparison or a value needs it; then the
terms are added in the order of the scopes that define them, so that every partial sum lands outside the loops
it does not depend on (`FunctionText.pure`), and unrolled copies differ in the constant only.

Index arithmetic is exact: it does not overflow 64 bits. Divisions use the intervals: what divides exactly is
taken out, what cannot change the quotient is dropped, and what is provably non-negative is divided unsigned.
A division by 0 gives 0, and so does its remainder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd, inf

from ansor.codegen.llvm.interval import Bound, decide
from ansor.codegen.llvm.text import FunctionText, Value, vector_type
from ansor.ir.bounds import OptionalInterval, hull, interval_of, to_interval, to_optional
from ansor.te.expr import BinaryOp

_I31 = 1 << 31


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """`const + sum(terms[name] * atom(name))`; no coefficient is 0."""

    const: int
    terms: dict[str, int]


@dataclass(frozen=True, slots=True)
class Atom:
    """An indivisible index value and the interval it stays in (None: unknown)."""

    value: Value
    low: Bound
    high: Bound


_SMALL = tuple(Affine(value, {}) for value in range(64))


def constant(value: int) -> Affine:
    """A number; small ones, which unrolled loops bind their variables to, are one object each."""
    return _SMALL[value] if 0 <= value < len(_SMALL) else Affine(value, {})


ZERO = constant(0)


def add(a: Affine, b: Affine, factor: int = 1) -> Affine:
    """`a + b * factor`."""
    const = a.const + b.const * factor
    if not b.terms:
        return Affine(const, a.terms)
    terms = dict(a.terms)
    for name, coefficient in b.terms.items():
        total = terms.get(name, 0) + coefficient * factor
        if total:
            terms[name] = total
        else:
            terms.pop(name, None)
    return Affine(const, terms)


def scale(a: Affine, factor: int) -> Affine:
    if factor == 0:
        return ZERO
    return a if factor == 1 else Affine(a.const * factor, {n: c * factor for n, c in a.terms.items()})


class IndexMath:
    """Affine forms of one function, and their way into its text."""

    def __init__(self, fn: FunctionText) -> None:
        self.fn = fn
        self.atoms: dict[str, Atom] = {}
        self._wide: set[str] = set()
        """The atoms that are vectors."""
        self._quotients: dict[str, tuple[Affine, int]] = {}
        self._remainders: dict[str, tuple[Affine, int]] = {}
        self._joined: dict[tuple[tuple[str, int], ...], Affine] = {}
        self._split_forms: dict[Affine, tuple[Affine, int | None]] = {}
        self._lanes_from: dict[tuple[int, int], Affine] = {}
        self._lane_values: dict[str, tuple[int, ...]] = {}
        """What atoms are in each lane, of those vectors that are made of lane numbers alone."""

    # -- atoms ---------------------------------------------------------------------------------------

    def atom(self, value: Value, low: Bound = None, high: Bound = None) -> Affine:
        """Make an i64 value (scalar or vector) an index."""
        if value.text not in self.atoms:
            self.atoms[value.text] = Atom(value, low, high)
            if value.lanes > 1:
                self._wide.add(value.text)
        return Affine(0, {value.text: 1})

    def lanes_from(self, first: Affine, lanes: int) -> Affine:
        """`first` plus the lane number of vectors of so many lanes; one object for each number."""
        key = (first.const, lanes)
        known = None if first.terms else self._lanes_from.get(key)
        if known is None:
            known = add(first, self.atom(Value(f"lane{lanes}", "i64", lanes, 0), 0, lanes - 1))
            self._lane_values[f"lane{lanes}"] = tuple(range(lanes))
            if not first.terms:
                self._lanes_from[key] = known
        return known

    def is_uniform(self, a: Affine) -> bool:
        """Whether all lanes have the same value."""
        return self._wide.isdisjoint(a.terms)

    def split_lanes(self, a: Affine) -> tuple[Affine, int | None]:
        """The index of lane 0 and the step from lane to lane; None for the step if it is not constant."""
        known = self._split_forms.get(a)
        if known is None:
            known = self._split_forms[a] = self._split_lanes(a)
        return known

    def _split_lanes(self, a: Affine) -> tuple[Affine, int | None]:
        if self.is_uniform(a):
            return a, 0
        step: int | None = 0
        uniform: dict[str, int] = {}
        for name, coefficient in a.terms.items():
            if name not in self._wide:
                uniform[name] = coefficient
            else:
                step = coefficient if step is not None and name.startswith("lane") else None
        return Affine(a.const, uniform), step

    def places(self, a: Affine) -> tuple[Affine, tuple[int, ...]] | None:
        """The part of an index that is the same for all lanes, and what each adds; None if that is not known.

        Quotients and remainders of lane numbers are known: `(4 * i + lane) // 2` adds 0, 0, 1, 1, ...
        """
        wide = Affine(0, {name: k for name, k in a.terms.items() if name in self._wide})
        values = self._values(wide)
        uniform = {name: k for name, k in a.terms.items() if name not in self._wide}
        return None if values is None else (Affine(a.const, uniform), values)

    def _values(self, a: Affine) -> tuple[int, ...] | None:
        """What is in each lane of a form that is made of lane numbers alone; None for others."""
        rows = [self._lane_values.get(name, ()) for name in a.terms]
        if not rows or not all(rows):
            return None
        factors, lanes = a.terms.values(), zip(*rows, strict=True)
        return tuple(a.const + sum(n * k for n, k in zip(lane, factors, strict=True)) for lane in lanes)

    def _keep_values(self, made: Affine, a: Affine, operate: Callable[[int], int]) -> None:
        """Remember what is in each lane of an atom that was made of `a`, where that is known."""
        values = self._values(a)
        if values is not None and made.const == 0 and list(made.terms.values()) == [1]:
            self._lane_values[next(iter(made.terms))] = tuple(map(operate, values))

    def interval(self, a: Affine) -> OptionalInterval:
        """Bounds of the values of `a`; None where there is none known."""
        low: Bound = a.const
        high: Bound = a.const
        for name, coefficient in a.terms.items():
            atom = self.atoms[name]
            first, last = (atom.low, atom.high) if coefficient > 0 else (atom.high, atom.low)
            low = None if low is None or first is None else low + first * coefficient
            high = None if high is None or last is None else high + last * coefficient
        return low, high

    def interval_of(self, op: BinaryOp, a: Affine, b: Affine) -> OptionalInterval:
        """Bounds of the values of an operation on two; None where there is none known."""
        found = interval_of(op, to_interval(self.interval(a)), to_interval(self.interval(b)))
        return to_optional(found or (-inf, inf))

    def depth(self, a: Affine) -> int:
        """The depth of the scope from which on all of `a` is known."""
        return max((self.atoms[name].value.depth for name in a.terms), default=0)

    # -- into text -----------------------------------------------------------------------------------

    def scalar(self, a: Affine) -> Value:
        """The i64 value of a uniform form."""
        total: Value | None = None
        for atom, coefficient in self.ordered(a):
            term = self.scaled(atom.value, coefficient)
            if total is None:
                total = term
            else:
                depth = max(total.depth, term.depth)
                total = self.fn.pure(f"add nsw i64 {total.text}, {term.text}", "i64", 1, depth)
        if total is None:
            return Value(str(a.const), "i64")
        if a.const == 0:
            return total
        return self.fn.pure(f"add nsw i64 {total.text}, {a.const}", "i64", 1, total.depth)

    def ordered(self, a: Affine) -> list[tuple[Atom, int]]:
        """The terms, outer scopes first."""
        terms = [(self.atoms[name], coefficient) for name, coefficient in a.terms.items()]
        if len(terms) > 1:
            terms.sort(key=lambda term: term[0].value.depth)
        return terms

    def scaled(self, value: Value, factor: int) -> Value:
        """`value * factor` for an i64 scalar."""
        if factor == 1:
            return value
        if factor > 0 and factor & (factor - 1) == 0:
            text = f"shl nsw i64 {value.text}, {factor.bit_length() - 1}"
        else:
            text = f"mul nsw i64 {value.text}, {factor}"
        return self.fn.pure(text, "i64", 1, value.depth)

    def vector(self, a: Affine, lanes: int, type_: str = "i64") -> Value:
        """The values of all lanes, as i64 or wrapped to a narrower integer type."""
        uniform: dict[str, int] = {}
        step = 0
        varying: list[tuple[Value, int]] = []
        for name, coefficient in a.terms.items():
            value = self.atoms[name].value
            if name.startswith("lane"):
                step = coefficient
            elif value.lanes > 1:
                varying.append((value, coefficient))
            else:
                uniform[name] = coefficient
        full = vector_type(type_, lanes)
        base = self.narrow(self.scalar(Affine(a.const, uniform)), type_)
        if base.text.lstrip("-").isdigit():
            first = int(base.text)
            values = ", ".join(f"{type_} {wrap(first + step * i, type_)}" for i in range(lanes))
            total = Value(f"<{values}>", type_, lanes)
            if first == 0 and step == 0:
                total = Value("zeroinitializer", type_, lanes)
        else:
            total = self.fn.splat(base, lanes)
            if step:
                values = ", ".join(f"{type_} {wrap(step * i, type_)}" for i in range(lanes))
                total = self.fn.pure(f"add {full} {total.text}, <{values}>", type_, lanes, total.depth)
        for value, coefficient in varying:
            term = self.narrow(value, type_)
            if coefficient != 1:
                term = self.fn.pure(
                    f"mul {full} {term.text}, splat ({type_} {wrap(coefficient, type_)})",
                    type_,
                    lanes,
                    term.depth,
                )
            if total.text == "zeroinitializer":
                total = term
            else:
                depth = max(total.depth, term.depth)
                total = self.fn.pure(f"add {full} {total.text}, {term.text}", type_, lanes, depth)
        return total

    def narrow(self, value: Value, type_: str) -> Value:
        """An i64 value wrapped to another integer type."""
        if type_ == value.type:
            return value
        if not value.text.startswith("%"):
            return Value(str(wrap(int(value.text), type_)), type_)
        text = f"trunc {value.full_type} {value.text} to {vector_type(type_, value.lanes)}"
        return self.fn.pure(text, type_, value.lanes, value.depth)

    # -- products, quotients, choices ----------------------------------------------------------------

    def multiply(self, a: Affine, b: Affine) -> Affine:
        if not b.terms:
            return scale(a, b.const)
        if not a.terms:
            return scale(b, a.const)
        return self.operate("mul nsw", a, b, *self.interval_of(BinaryOp.MUL, a, b))

    def floordiv(self, a: Affine, b: Affine) -> Affine:
        """`a // b`, rounding towards minus infinity."""
        return self._defined(self._floordiv, a, b, quotient=True)

    def _defined(
        self, divide: Callable[[Affine, Affine], Affine], a: Affine, b: Affine, *, quotient: bool
    ) -> Affine:
        """`divide(a, b)`, or 0 where b is 0; what may be the least integer is not divided by -1."""
        if not b.terms:
            return divide(a, b) if b.const else ZERO
        low, high = self.interval(b)
        zero, least = self.compare("eq", b, ZERO), self.interval(a)[0] is None
        minus = self.compare("eq", b, constant(-1)) if least and not self._non_negative(b) else False
        bounds = (1, high) if low is not None and low >= 0 else None
        safe = self.choose_int(zero, constant(1), self.choose_int(minus, constant(1), b), bounds)
        result = divide(a, safe)
        if not quotient:
            return result
        return self.choose_int(zero, ZERO, self.choose_int(minus, scale(a, -1), result))

    def _floordiv(self, a: Affine, b: Affine) -> Affine:
        if b.terms:
            unsigned = self._non_negative(a) and self._non_negative(b)
            if unsigned:
                return self.operate("udiv", a, b, 0, self.interval(a)[1], dear=True)
            quotient = self.operate("sdiv", a, b, None, None, dear=True)
            rest = add(a, self.multiply(quotient, b), -1)
            off = self.choose_int(self._wrong_sign(rest, b), constant(1), ZERO, (0, 1))
            return add(quotient, off, -1)
        if b.const < 0:
            return self._floordiv(scale(a, -1), constant(-b.const))
        whole, rest = self._split(a, b.const)
        return rest if whole is None else add(whole, rest)

    def _split(self, a: Affine, c: int) -> tuple[Affine | None, Affine]:
        """`a // c` for c > 0, as an exactly divided part (or None) and the quotient of what is left."""
        whole = Affine(a.const // c, {n: k // c for n, k in a.terms.items() if k % c == 0})
        left = Affine(a.const % c, {n: k for n, k in a.terms.items() if k % c})
        low, high = self.interval(left)
        if low is not None and high is not None and low // c == high // c:
            return whole, constant(low // c)
        common = gcd(c, *left.terms.values())
        if common > 1:
            return whole, self._quotient(
                Affine(left.const // common, {n: k // common for n, k in left.terms.items()}), c // common
            )
        return whole, self._quotient(left, c)

    def joined(self, a: Affine) -> Affine:
        """`a` with quotients and their remainders put together again: `x // 3 * 3 + x % 3` is `x`.

        An offset in a row-major buffer is such a sum when its indices are parts of one fused loop.
        """
        if self._remainders.keys().isdisjoint(a.terms):
            return a
        key = tuple(sorted(a.terms.items()))
        known = self._joined.get(key)
        if known is None:
            known = self._joined[key] = self._join(Affine(0, a.terms))
        return Affine(a.const + known.const, known.terms)

    def _join(self, a: Affine) -> Affine:
        total, expanded = a, set[str]()
        while rests := [name for name in total.terms if name in self._remainders and name not in expanded]:
            dividend, c = self._remainders[rests[0]]
            factor = total.terms[rests[0]]
            total = add(total, Affine(0, {rests[0]: 1}), -factor)
            total = add(add(total, dividend, factor), self.floordiv(dividend, constant(c)), -c * factor)
            expanded.add(rests[0])
        return total if self._divisions(total) < self._divisions(a) else a

    def _divisions(self, a: Affine) -> int:
        """How many terms are quotients or remainders."""
        return sum(name in self._quotients or name in self._remainders for name in a.terms)

    def _quotient(self, a: Affine, c: int) -> Affine:
        nested = next((name for name, k in a.terms.items() if k == 1 and name in self._quotients), None)
        if nested is not None:  # (y + x // 3) // 7 is (y * 3 + x) // 21
            dividend, divisor = self._quotients[nested]
            rest = add(a, Affine(0, {nested: 1}), -1)
            return self.floordiv(add(dividend, rest, divisor), constant(divisor * c))
        quotient = self._new_quotient(a, c)
        self._keep_values(quotient, a, lambda value: value // c)
        if quotient.const == 0 and len(quotient.terms) == 1:
            self._quotients[next(iter(quotient.terms))] = (a, c)
        return quotient

    def _new_quotient(self, a: Affine, c: int) -> Affine:
        bounds = self.interval_of(BinaryOp.FLOORDIV, a, constant(c))
        non_negative = self._non_negative(a)
        shift = c.bit_length() - 1
        if c & (c - 1) == 0:
            return self.operate("lshr" if non_negative else "ashr", a, constant(shift), *bounds)
        if non_negative:
            return self.operate("udiv", a, constant(c), *bounds)
        quotient = self.operate("sdiv", a, constant(c), None, None)
        rest = add(a, quotient, -c)
        negative = self.compare("lt", rest, ZERO)
        off = self.choose_int(negative, constant(1), ZERO, (0, 1))
        result = add(quotient, off, -1)
        return self._renamed(result, *bounds)

    def floormod(self, a: Affine, b: Affine) -> Affine:
        """`a % b` with the sign of the divisor."""
        return self._defined(self._floormod, a, b, quotient=False)

    def _floormod(self, a: Affine, b: Affine) -> Affine:
        if b.terms or b.const < 0:
            return add(a, self.multiply(self._floordiv(a, b), b), -1)
        c = b.const
        left = Affine(a.const % c, {n: k for n, k in a.terms.items() if k % c})
        low, high = self.interval(left)
        if low is not None and high is not None and low // c == high // c:
            return add(left, constant(low // c * c), -1)
        if c & (c - 1) == 0:
            rest = self.operate("and", left, constant(c - 1), 0, c - 1)
        else:
            _, quotient = self._split(left, c)
            rest = self._renamed(add(left, quotient, -c), 0, c - 1)
        self._keep_values(rest, left, lambda value: value % c)
        for name in rest.terms:
            self._remainders[name] = (left, c)
        return rest

    def truncdiv(self, a: Affine, b: Affine) -> Affine:
        """`a / b` rounding towards zero, as in C."""
        if self._non_negative(a) and self._non_negative(b):
            return self.floordiv(a, b)
        return self._defined(
            lambda x, y: self.operate("sdiv", x, y, None, None, dear=bool(y.terms)), a, b, quotient=True
        )

    def truncmod(self, a: Affine, b: Affine) -> Affine:
        """The remainder of `truncdiv`, with the sign of the dividend."""
        if self._non_negative(a) and self._non_negative(b):
            return self.floormod(a, b)
        return self._defined(
            lambda x, y: self.operate("srem", x, y, None, None, dear=bool(y.terms)), a, b, quotient=False
        )

    def extreme(self, a: Affine, b: Affine, least: bool) -> Affine:
        """The lesser or the greater of two."""
        first = self.compare("le" if least else "ge", a, b)
        op = BinaryOp.MIN if least else BinaryOp.MAX
        return self.choose_int(first, a, b, self.interval_of(op, a, b))

    def choose_int(
        self, cond: Value | bool, a: Affine, b: Affine, bounds: OptionalInterval | None = None
    ) -> Affine:
        """`a` where `cond` holds, else `b`."""
        if isinstance(cond, bool):
            return a if cond else b
        if bounds is None:
            bounds = to_optional(hull(to_interval(self.interval(a)), to_interval(self.interval(b))))
        lanes = max(cond.lanes, self._lanes(a), self._lanes(b))
        x, y = self._both(a, b, lanes)
        full = vector_type("i64", lanes)
        text = f"select {cond.full_type} {cond.text}, {full} {x.text}, {full} {y.text}"
        return self.atom(self.fn.pure(text, "i64", lanes, max(cond.depth, x.depth, y.depth)), *bounds)

    def compare(self, op: str, a: Affine, b: Affine) -> Value | bool:
        """Compare (eq ne lt le gt ge): a Python bool where the intervals decide, else an i1 value."""
        difference = add(a, b, -1)
        low, high = self.interval(difference)
        decided = decide(op, low, high)
        if decided is not None:
            return decided
        positive = Affine(0, {n: c for n, c in difference.terms.items() if c > 0})
        negative = Affine(-difference.const, {n: -c for n, c in difference.terms.items() if c < 0})
        lanes = self._lanes(difference)
        predicate = op if op in ("eq", "ne") else f"s{op}"
        type_ = "i64"
        if lanes == 1:
            x, y = self.scalar(positive), self.scalar(negative)
        else:
            ends = (*self.interval(positive), *self.interval(negative))
            if all(end is not None and -_I31 <= end < _I31 for end in ends):
                type_ = "i32"
            x, y = self.vector(positive, lanes, type_), self.vector(negative, lanes, type_)
        text = f"icmp {predicate} {vector_type(type_, lanes)} {x.text}, {y.text}"
        return self.fn.pure(text, "i1", lanes, max(x.depth, y.depth))

    # -- helpers -------------------------------------------------------------------------------------

    def _non_negative(self, a: Affine) -> bool:
        low, _ = self.interval(a)
        return low is not None and low >= 0

    def _lanes(self, a: Affine) -> int:
        return 1 if self.is_uniform(a) else max(self.atoms[name].value.lanes for name in a.terms)

    def _both(self, a: Affine, b: Affine, lanes: int, type_: str = "i64") -> tuple[Value, Value]:
        if lanes == 1:
            return self.scalar(a), self.scalar(b)
        return self.vector(a, lanes, type_), self.vector(b, lanes, type_)

    def operate(
        self, opcode: str, a: Affine, b: Affine, low: Bound, high: Bound, dear: bool = False
    ) -> Affine:
        """An instruction on two forms as a new atom; vectors of small non-negative numbers as i32."""
        lanes = max(self._lanes(a), self._lanes(b))
        ends = (*self.interval(a), *self.interval(b), low, high)
        small = lanes > 1 and all(end is not None and 0 <= end < _I31 for end in ends)
        type_ = "i32" if small else "i64"
        x, y = self._both(a, b, lanes, type_)
        emit = self.fn.inside if dear else self.fn.pure
        full = vector_type(type_, lanes)
        value = emit(f"{opcode} {full} {x.text}, {y.text}", type_, lanes, max(x.depth, y.depth))
        if small:
            wide = vector_type("i64", lanes)
            value = self.fn.pure(f"zext {full} {value.text} to {wide}", "i64", lanes, value.depth)
        return self.atom(value, low, high)

    def _renamed(self, a: Affine, low: Bound, high: Bound) -> Affine:
        """`a` as one atom, of which more is known than its terms tell."""
        lanes = self._lanes(a)
        value = self.scalar(a) if lanes == 1 else self.vector(a, lanes)
        if not value.text.startswith("%"):
            return constant(int(value.text))
        known = self.atoms.get(value.text)
        if known is not None:  # the value is an atom already: keep the better bounds
            low = known.low if low is None else low
            high = known.high if high is None else high
            self.atoms[value.text] = Atom(value, low, high)
            return Affine(0, {value.text: 1})
        return self.atom(value, low, high)

    def _wrong_sign(self, rest: Affine, divisor: Affine) -> Value | bool:
        """Whether the remainder is not zero and of the other sign than the divisor."""
        lanes = max(self._lanes(rest), self._lanes(divisor))
        x, y = self._both(rest, divisor, lanes)
        depth, full = max(x.depth, y.depth), vector_type("i64", lanes)
        signs = self.fn.pure(f"xor {full} {x.text}, {y.text}", "i64", lanes, depth)
        zero = "0" if lanes == 1 else "zeroinitializer"
        differ = self.fn.pure(f"icmp slt {full} {signs.text}, {zero}", "i1", lanes, depth)
        some = self.fn.pure(f"icmp ne {full} {x.text}, {zero}", "i1", lanes, depth)
        return self.fn.pure(f"and {differ.full_type} {differ.text}, {some.text}", "i1", lanes, depth)


def wrap(value: int, type_: str) -> int:
    """`value` as a signed number of an LLVM integer type, two's complement."""
    bits = int(type_[1:])
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
