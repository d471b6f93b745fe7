"""The terms of reductions: what updates combine with their elements, and what that needs to change anything.

A term needs the conditions without which it is the combiner's identity. A choice whose other side is the
identity needs its condition, as an element of padding does in a maximum. In a sum, a product needs what each
of its factors needs. Conditions that read memory do not count.

A factor of zero makes a product nothing, whatever the other factor is. Where that is infinite, or no number,
IEEE arithmetic says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ansor.dtypes import int_range, is_integer
from ansor.ir.nest import Store
from ansor.ir.rewriting import conjunction, conjuncts, negated, reads_memory
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    children,
    int_value,
    reached,
    rewrite,
)
from ansor.te.reduction import builtin_combiner
from ansor.te.structure import is_among, same_place

REDUCERS: Final = {
    BinaryOp.ADD: "sum",
    BinaryOp.MUL: "prod",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
}
"""The combiners that are one operation, by that."""
_AT_LEAST: Final = {BinaryOp.MAX: BinaryOp.GE, BinaryOp.MIN: BinaryOp.LE}
"""How an extreme compares with each of its sides."""
_SHIFTS: Final = (BinaryOp.ADD, BinaryOp.SUB)


@dataclass(frozen=True, slots=True)
class Combination:
    """What a statement stores: its own `element`, and a `term`, combined by `op`, one of `REDUCERS`.

    With a `condition` it stores the element as it is where that fails.
    """

    op: BinaryOp
    element: Load
    term: Expr
    condition: Expr | None = None

    @property
    def identity(self) -> Expr:
        """The term that changes nothing."""
        return identity_of(self.op, self.element.dtype)


def combination_of(store: Store) -> Combination | None:
    """How a reduction's update combines its element with a term; None for another statement."""
    value, condition = store.value, None
    if isinstance(value, Select) and _is_element(value.other, store):
        condition, value = value.cond, value.then
    if not isinstance(value, Binary) or value.op not in REDUCERS:
        return None
    for one, other in ((value.a, value.b), (value.b, value.a)):
        if _is_element(one, store):
            assert isinstance(one, Load)
            return Combination(value.op, one, other, condition)
    return None


def _is_element(value: Expr, store: Store) -> bool:
    """Whether a value is what the element holds that a statement stores to."""
    return (
        isinstance(value, Load) and value.buffer is store.buffer and same_place(value.indices, store.indices)
    )


def identity_of(op: BinaryOp, dtype: str) -> Expr:
    """What an operation of `REDUCERS` combines with any value of a dtype to that value."""
    (identity,) = builtin_combiner(REDUCERS[op], dtype).identity
    return identity


def needed(term: Expr, identity: Expr) -> tuple[Expr, ...]:
    """The conditions, each once, that all have to hold for `term` to be anything else than `identity`."""
    if not isinstance(identity, Const):
        return ()
    found: list[Expr] = []
    pending, seen = [term], set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        match node:
            case Select(cond=cond, then=then, other=Const(value=value)) if value == identity.value:
                tests = (test for test in conjuncts(cond) if not reads_memory(test))
                found.extend(test for test in tests if not is_among(test, found))
                pending.append(then)
            case Binary(op=BinaryOp.MUL, a=a, b=b) if identity.value == 0:
                pending += [b, a]
            case Cast(a=a) if identity.value == 0:
                pending.append(a)
            case _:
                continue
    return tuple(found)


def is_identity(term: Expr, identity: Expr) -> bool:
    """Whether `term` is seen to be `identity`: that constant, or in a sum a product with zero."""
    if not isinstance(identity, Const):
        return False
    factors = reached(term, _factors) if identity.value == 0 else (term,)
    return any(isinstance(factor, Const) and bool(factor.value == identity.value) for factor in factors)


def _factors(term: Expr) -> tuple[Expr, ...]:
    """Those of a product, and what is converted: where one of them is zero, the term is."""
    is_product = isinstance(term, Binary) and term.op is BinaryOp.MUL
    return children(term) if is_product or isinstance(term, Cast) else ()


def sides(node: Expr) -> tuple[tuple[Expr, Expr], ...]:
    """When a choice between integers or their extreme is which side, as a test and that; none by memory.

    A remainder is what it is of, or once the divisor more or less: so indices go around the end of an axis.
    """
    if not is_integer(node.dtype):
        return ()
    found: tuple[tuple[Expr, Expr], ...]
    match node:
        case Binary(op=BinaryOp.FLOORMOD, a=a, b=b):
            found = tuple(_remainders(a, b))
        case Binary(op=op, a=a, b=b) if op in _AT_LEAST:
            found = tuple((Binary(_AT_LEAST[op], x, y, "bool"), x) for x, y in ((a, b), (b, a)))
        case Call(name="abs", args=(a,)):
            zero = Const(0, a.dtype)
            found = (Binary(BinaryOp.GE, a, zero, "bool"), a), (Binary(BinaryOp.LE, a, zero, "bool"), -a)
        case Select(cond=cond, then=then, other=other):
            found = (cond, then), (negated(cond), other)
        case _:
            return ()
    return () if any(reads_memory(test) for test, _ in found) else found


def _remainders(a: Expr, divisor: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The values of `a % divisor` whose quotient is 0, 1 or -1, each with the test that it is.

    Of symbolic divisors only what is shifted by a number: other remainders are the pieces of fused loops.
    """
    least, greatest = int_range(a.dtype)
    most = int_value(divisor)
    if most is None and not (isinstance(a, Binary) and a.op in _SHIFTS and isinstance(a.b, Const)):
        return
    for quotient in (0, 1, -1):
        if most is None or least <= (quotient - 1) * most <= (quotient + 1) * most <= greatest:
            shifted = a - divisor * quotient
            ends = Binary(BinaryOp.GE, a, divisor * quotient, "bool"), a < divisor * (quotient + 1)
            yield Binary(BinaryOp.AND, *ends, "bool"), shifted


def assumed(value: Expr, tests: Sequence[Expr]) -> Expr:
    """A value where those conditions of its choices, and of its extremes, hold that are among `tests`."""

    def visit(node: Expr) -> Expr | None:
        for test, side in sides(node):
            if all(is_among(part, tests) for part in conjuncts(test)):
                return side
        if not isinstance(node, Select):
            return None
        parts = conjuncts(node.cond)
        kept = tuple(part for part in parts if not is_among(part, tests))
        cond = conjunction(kept)
        if cond is None:
            return assumed(node.then, tests)
        return None if len(kept) == len(parts) else replace(node, cond=cond, then=assumed(node.then, tests))

    return rewrite(value, visit)
