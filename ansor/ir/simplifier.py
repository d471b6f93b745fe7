"""The simplifier: canonical integer expressions and conditions under one set of bounds.

Integer expressions become affine forms (`ansor.ir.affine`) and are built again from them; comparisons have a
form of their own (`ansor.ir.comparisons`). All other nodes are kept, over canonical children. One object
stands for all expressions found equal, which is what lets sums collect equal terms and conjunctions drop
repetitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final

from ansor.dtypes import int_range, is_integer
from ansor.ir.affine import Affine, Atom, AtomTable, add, constant, reduced
from ansor.ir.bounds import (
    Bounds,
    Interval,
    OptionalInterval,
    exceeds,
    hull,
    interval_of,
    merged,
    to_interval,
    to_optional,
)
from ansor.ir.comparisons import ORDER, below_zero, compared
from ansor.ir.learning import Sum, learn_ranges
from ansor.ir.rewriting import NEGATED, operands
from ansor.te.expr import (
    BITWISE,
    COMPARISONS,
    FOLDERS,
    LOGICAL,
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    IterVar,
    Not,
    Reduce,
    Select,
    Var,
    arithmetic_of_bits,
    children,
    distinct_nodes,
    int_value,
    with_children,
    wrap_int,
)
from ansor.te.structure import node_key, same_structure

MOST_LEVELS: Final = 4
"""So many choices inside of each other narrow what is known; what both sides use is simplified for each."""
TRUE = Const(True, "bool")
FALSE = Const(False, "bool")


class Simplifier:
    """Canonical forms under the ranges of one `Bounds`; see the module's text.

    It does not know the `Bounds`, which goes with it when nobody needs it any more.
    """

    def __init__(self, ranges: Mapping[Var, OptionalInterval], level: int = 0) -> None:
        self.table = AtomTable()
        self._level = level
        self._ranges = ranges
        self._affine: dict[int, tuple[Expr, Affine]] = {}
        self._canonical: dict[int, tuple[Expr, Expr]] = {}
        self._conditions: dict[object, Expr] = {}
        self._assumed: dict[tuple[int, bool], Bounds | None] = {}
        self._sides: dict[tuple[int, bool], Simplifier] = {}
        self._below_zero: dict[int, tuple[Expr, Affine | None]] = {}

    # -- any expression --------------------------------------------------------------------------------

    def canonical(self, expr: Expr) -> Expr:
        """The canonical expression; one object for all integer and bool expressions found equal."""
        try:
            return self._known_or_new(expr)
        except RecursionError:
            for node in distinct_nodes(expr):  # a deep expression: children first
                self._known_or_new(node)
            return self._known_or_new(expr)

    def _known_or_new(self, expr: Expr) -> Expr:
        known = self._canonical.get(id(expr))
        if known is not None:
            return known[1]
        if expr.dtype == "bool":
            result = self._condition(expr)
        elif is_integer(expr.dtype):
            result = self.table.build(self.affine(expr), expr.dtype)
        else:
            result = self._value(expr)
        self._canonical[id(expr)] = (expr, result)
        self._canonical[id(result)] = (result, result)
        return result

    def _value(self, expr: Expr) -> Expr:
        """A float expression: only its integer and bool parts change."""
        if isinstance(expr, Select):
            return self._select(expr)
        if isinstance(expr, Reduce):
            return expr
        return self._over_children(expr)

    def _over_children(self, expr: Expr) -> Expr:
        old = children(expr)
        return with_children(expr, tuple(self.canonical(child) for child in old)) if old else expr

    def _select(self, expr: Select) -> Expr:
        cond = self.canonical(expr.cond)
        if isinstance(cond, Const):
            return self.canonical(expr.then if cond.value else expr.other)
        if expr.lazy:
            then = self._under(cond, True).canonical(expr.then)
            other = self._under(cond, False).canonical(expr.other)
        else:
            then, other = self.canonical(expr.then), self.canonical(expr.other)
        if then is other or (expr.lazy and same_structure(then, other)):
            return then
        return with_children(expr, (cond, then, other))

    def assuming(self, cond: Expr, holds: bool) -> Bounds | None:
        """The bounds inside a branch taken when `cond`, canonical, is `holds`; None if no narrower."""
        key = (id(cond), holds)
        if key not in self._assumed:
            self._assumed[key] = self._narrowed(cond, holds)
        return self._assumed[key]

    def _narrowed(self, cond: Expr, holds: bool) -> Bounds | None:
        found = learn_ranges(cond, holds, self.range_of, self._sum_below_zero)
        if not found or any(low > high for low, high in found.values()):
            return None
        return merged(self._ranges, {var: to_optional(range_) for var, range_ in found.items()})

    def _under(self, cond: Expr, holds: bool) -> Simplifier:
        """The simplifier on the side of a choice that is taken when `cond` is `holds`."""
        key = (id(cond), holds)
        if key not in self._sides:
            narrowed = self.assuming(cond, holds) if self._level < MOST_LEVELS else None
            self._sides[key] = self if narrowed is None else Simplifier(dict(narrowed), self._level + 1)
        return self._sides[key]

    def _sum_below_zero(self, comparison: Expr) -> Sum | None:
        form = self.below_zero(comparison)
        if form is None:
            return None
        return [(self.table.atoms[number].node, c) for number, c in form.terms.items()], form.const

    # -- integers --------------------------------------------------------------------------------------

    def affine(self, expr: Expr) -> Affine:
        """The affine form of an integer expression."""
        if isinstance(expr, Const):
            return constant(int(expr.value))
        known = self._affine.get(id(expr))
        if known is not None:
            return known[1]
        match expr:
            case Var():
                result = self._variable(expr)
            case Binary():
                result = self._arithmetic(expr)
            case Select():
                result = self._integer_select(expr)
            case Cast():
                result = self._integer_cast(expr)
            case Call(name="abs", args=(arg,)) if self.range_of(arg)[0] >= 0:
                result = self.affine(arg)
            case _:
                result = self._opaque(self._over_children(expr))
        self._affine[id(expr)] = (expr, result)
        return result

    def range_of(self, expr: Expr) -> Interval:
        """The interval of an integer expression's value, ends possibly infinite."""
        return self.table.interval_in(self.affine(expr), expr.dtype)

    def _variable(self, var: Var) -> Affine:
        index = True
        if var in self._ranges:
            low, high = to_interval(self._ranges[var])
        elif isinstance(var, IterVar):
            extent = int_value(var.extent)
            low, high = 0, inf if extent is None else max(extent - 1, 0)
        else:
            (low, high), index = int_range(var.dtype), False
        return self.table.intern(("var", id(var)), Atom(var, low, high, index))

    def _opaque(self, node: Expr, range_: Interval | None = None, *, index: bool = False) -> Affine:
        """An integer node, its children canonical, as an atom."""
        low, high = range_ or int_range(node.dtype)
        return self.table.intern(node_key(node), Atom(node, low, high, index))

    def _integer_select(self, expr: Select) -> Affine:
        node = self._select(expr)
        if not isinstance(node, Select):
            return self.affine(node)
        if self.affine(node.then).key() == self.affine(node.other).key():
            return self.affine(node.then)
        if node.lazy:
            then = self._under(node.cond, True).range_of(node.then)
            other = self._under(node.cond, False).range_of(node.other)
        else:
            then, other = self.range_of(node.then), self.range_of(node.other)
        index = all(self.table.is_index(self.affine(side)) for side in (node.then, node.other))
        return self._opaque(node, hull(then, other), index=index)

    def _integer_cast(self, expr: Cast) -> Affine:
        node = self._over_children(expr)
        if not isinstance(node, Cast):
            return self.affine(node)
        if node.a.dtype == "bool":
            if isinstance(node.a, Const):
                return constant(int(node.a.value))
            return self._opaque(node, (0, 1))
        if not is_integer(node.a.dtype):
            return self._opaque(node)
        inner = self.affine(node.a)
        if not inner.terms:
            return constant(wrap_int(inner.const, expr.dtype))
        low, high = self.range_of(node.a)
        smallest, largest = int_range(expr.dtype)
        index = self.table.is_index(inner)
        if (smallest <= low or (low == -inf and index)) and (high <= largest or (high == inf and index)):
            return self._opaque(node, (low, high), index=index)
        return self._opaque(node)

    def _arithmetic(self, expr: Binary) -> Affine:
        a, b = self.affine(expr.a), self.affine(expr.b)
        table, dtype = self.table, expr.dtype
        op = expr.op
        if not a.terms and not b.terms:
            x, y = wrap_int(a.const, dtype), wrap_int(b.const, dtype)
            if y != 0 or op in _TOTAL:
                return constant(wrap_int(int(FOLDERS[op](x, y)), dtype))
        match op:
            case BinaryOp.ADD:
                result = table.recombined(add(a, b), dtype)
            case BinaryOp.SUB:
                result = table.recombined(add(a, b, -1), dtype)
            case BinaryOp.MUL:
                result = table.multiply(a, b, dtype)
            case BinaryOp.MIN | BinaryOp.MAX:
                result = self._extreme(expr, self.exact(a, dtype), self.exact(b, dtype))
            case _ if op in BITWISE:
                result = self._bitwise(expr, self.exact(a, dtype), self.exact(b, dtype))
            case _:
                result = self._division(expr, self.exact(a, dtype), self.exact(b, dtype))
        return table.recombined(table.opened(result), dtype)

    def exact(self, a: Affine, dtype: str) -> Affine:
        """A form whose value is exactly the machine's: `a`, or one atom for it if it may wrap."""
        if self.table.fits(a, dtype):
            return a
        if not a.terms:
            return constant(wrap_int(a.const, dtype))
        near = reduced(a, dtype)
        return near if self.table.fits(near, dtype) else self.table.whole(near, dtype)

    def _extreme(self, expr: Binary, a: Affine, b: Affine) -> Affine:
        low, high = self.table.interval(add(a, b, -1))
        smaller, larger = (a, b) if expr.op is BinaryOp.MIN else (b, a)
        if high <= 0:
            return smaller
        if low >= 0:
            return larger
        (a_low, a_high), (b_low, b_high) = self.table.interval(a), self.table.interval(b)
        pick = min if expr.op is BinaryOp.MIN else max
        node = self._rebuilt(expr, a, b)
        index = self.table.is_index(a) and self.table.is_index(b)
        return self._opaque(node, (pick(a_low, b_low), pick(a_high, b_high)), index=index)

    def _bitwise(self, expr: Binary, a: Affine, b: Affine) -> Affine:
        """An operator on bits: arithmetic, if it is that by now, or an atom."""
        plain = arithmetic_of_bits(expr.op, *(self.table.build(side, expr.dtype) for side in (a, b)))
        if plain is not None:
            return self.affine(plain)
        node = self._rebuilt(expr, a, b)
        found = interval_of(expr.op, self.table.interval(a), self.table.interval(b))
        if found is None or exceeds(found, expr.dtype):
            return self._opaque(node)
        return self._opaque(node, found, index=self.table.is_index(a) and self.table.is_index(b))

    def _rebuilt(self, expr: Binary, a: Affine, b: Affine) -> Expr:
        return with_children(expr, (self.table.build(a, expr.dtype), self.table.build(b, expr.dtype)))

    def _division(self, expr: Binary, a: Affine, b: Affine) -> Affine:
        table, dtype = self.table, expr.dtype
        quotient = expr.op in (BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV)
        low, high = table.interval(a)
        divisor_low, divisor_high = table.interval(b)
        truncating = expr.op in (BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD)
        if divisor_low < 1 or (truncating and low < 0):
            return self._opaque(self._rebuilt(expr, a, b))
        if not b.terms:
            return table.divide(a, b.const, dtype) if quotient else table.modulo(a, b.const, dtype)
        floor = BinaryOp.FLOORDIV if quotient else BinaryOp.FLOORMOD
        outside, inside = self._symbolic_split(a, b)
        in_low, in_high = table.interval(inside)
        if in_low >= 0 and table.interval(add(inside, b, -1))[1] < 0:
            return outside if quotient else inside
        if not table.fits(inside, dtype):
            outside, inside = constant(0), a
            in_low, in_high = low, high
        node = Binary(floor, table.build(inside, dtype), table.build(b, dtype), dtype)
        index = table.is_index(inside) and table.is_index(b)
        if not quotient:
            return self._opaque(node, (0, divisor_high - 1), index=index)
        return add(outside, self._opaque(node, (min(in_low, 0), max(in_high, 0)), index=index))

    def _symbolic_split(self, a: Affine, divisor: Affine) -> tuple[Affine, Affine]:
        """`a = divisor * outside + inside` for a divisor that is one atom."""
        nothing = constant(0), a
        if divisor.const or len(divisor.terms) != 1 or next(iter(divisor.terms.values())) != 1:
            return nothing
        by = next(iter(divisor.terms))
        outside, inside = constant(0), Affine({}, a.const)
        for number, coefficient in a.terms.items():
            factors = list(self.table.factors(number))
            if by not in factors:
                inside = add(inside, Affine({number: coefficient}, 0))
                continue
            factors.remove(by)
            if len(factors) > 1:
                return nothing
            rest = Affine({factors[0]: coefficient}, 0) if factors else constant(coefficient)
            outside = add(outside, rest)
        return outside, inside

    # -- conditions --------------------------------------------------------------------------------------

    def _condition(self, expr: Expr) -> Expr:
        match expr:
            case Const(value=value):
                return TRUE if value else FALSE
            case Binary(op=op, a=a, b=b) if op in COMPARISONS and is_integer(a.dtype):
                return self._compare(op, self.affine(a), self.affine(b), a.dtype)
            case Binary(op=op) if op in LOGICAL:
                return self._logic(expr)
            case Not(a=a):
                return self._negation(self.canonical(a))
            case Select():
                return self._interned(self._select(expr))
            case Cast(a=a) if a.dtype == "bool":
                return self.canonical(a)
            case _:
                return self._interned(self._over_children(expr))

    def _interned(self, cond: Expr) -> Expr:
        """The one object that stands for this condition (children canonical)."""
        return self._conditions.setdefault(node_key(cond), cond)

    def _negation(self, cond: Expr) -> Expr:
        match cond:
            case Const(value=value):
                return FALSE if value else TRUE
            case Not(a=a):
                return a
            case Binary(op=op, a=a, b=b) if op in NEGATED and is_integer(a.dtype):
                return self._compare(NEGATED[op], self.affine(a), self.affine(b), a.dtype)
            case _:
                return self._interned(Not(cond))

    def _logic(self, expr: Binary) -> Expr:
        parts: list[Expr] = []
        for part in operands(expr, expr.op):
            for one in operands(self.canonical(part), expr.op):
                if isinstance(one, Const):
                    if bool(one.value) == (expr.op is BinaryOp.OR):
                        return TRUE if one.value else FALSE
                elif not any(one is other for other in parts):
                    parts.append(one)
        if not parts:
            return TRUE if expr.op is BinaryOp.AND else FALSE
        result = parts[0]
        for part in parts[1:]:
            result = self._interned(Binary(expr.op, result, part, "bool"))
        return result

    def _compare(self, op: BinaryOp, left: Affine, right: Affine, dtype: str) -> Expr:
        a, b = self.exact(left, dtype), self.exact(right, dtype)
        difference = self.table.recombined(add(a, b, -1), dtype)
        sides = compared(self.table, op, difference, dtype)
        if isinstance(sides, bool):
            return TRUE if sides else FALSE
        new_op, x, y = sides
        if not (self.table.fits(x, dtype) and self.table.fits(y, dtype)):
            new_op, x, y = op, a, b
        return self._interned(Binary(new_op, self.table.build(x, dtype), self.table.build(y, dtype), "bool"))

    def below_zero(self, cond: Expr) -> Affine | None:
        """The form that is negative exactly where `cond` holds; None if it is no order of integers."""
        known = self._below_zero.get(id(cond))
        if known is None:
            known = self._below_zero[id(cond)] = cond, self._find_below_zero(cond)
        return known[1]

    def _find_below_zero(self, cond: Expr) -> Affine | None:
        if not isinstance(cond, Binary) or cond.op not in ORDER or not is_integer(cond.a.dtype):
            return None
        a, b = (self.exact(self.affine(side), cond.a.dtype) for side in (cond.a, cond.b))
        difference = self.table.recombined(add(a, b, -1), cond.a.dtype)
        return below_zero(cond.op, difference)

    def is_below_zero(self, form: Affine, dtype: str) -> Expr:
        """The condition that a form of `dtype` is negative."""
        return self._compare(BinaryOp.LT, form, constant(0), dtype)


_TOTAL = frozenset({*BITWISE, BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX})
