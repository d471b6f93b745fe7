"""Forms of loops: digits of an index, put together again, and intervals of what is clamped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.schedule.affine import (
    Affine,
    Interval,
    LoopAtom,
    OpaqueAtom,
    SizeAtom,
    UnknownBoundError,
    joined,
)
from ansor.schedule.evaluation import evaluate
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Var, substitute
from ansor.te.interp import evaluate as run
from tests.random_choice import Chooser

Lengths = list[int] | list[np.ndarray]


def digits(index: Expr, lengths: Lengths, drop: int | None = None) -> Expr:
    """An index as the sum of its digits, of which the inner ones have some lengths."""

    def applied(op: BinaryOp, a: Expr, number: object) -> Expr:
        return Binary(op, a, Const(number, "int32"), "int32")  # type: ignore[arg-type]

    strides = [np.prod(lengths[position:], axis=0) for position in range(len(lengths))] + [1]
    total = applied(BinaryOp.MUL, applied(BinaryOp.FLOORDIV, index, strides[0]), strides[0])
    for position, (length, stride) in enumerate(zip(lengths, strides[1:], strict=True)):
        digit = applied(BinaryOp.FLOORMOD, applied(BinaryOp.FLOORDIV, index, stride), length)
        if position != drop:
            total = Binary(BinaryOp.ADD, total, applied(BinaryOp.MUL, digit, stride), "int32")
    return total


COLUMNS: list[Lengths] = [
    [3],
    [4, 2],
    [2, 1, 5],
    [np.array([3, 8])],
    [np.array([1, 4]), np.array([6, 1]), np.array([1, 5])],
]


@pytest.mark.parametrize("lengths", COLUMNS, ids=str)
def test_an_index_is_the_sum_of_its_digits(lengths: Lengths) -> None:
    i, j = Var("i"), Var("j")
    for index in (i, Binary(BinaryOp.ADD, i, j, "int32")):
        form = joined(evaluate(digits(index, lengths), {}).base) - evaluate(index, {}).base
        assert not form.terms
        assert np.all(form.const == 0)


@pytest.mark.parametrize("drop", [0, 1])
def test_what_lacks_a_digit_stays_less(drop: int) -> None:
    lengths = [4, 2]
    index = Var("i")
    form = evaluate(digits(index, lengths, drop), {}).base
    assert any(isinstance(atom, OpaqueAtom) for atom in joined(form).terms)
    for value in range(40):
        assert value_of(joined(form), index, value) == value_of(form, index, value)


def value_of(form: Affine, var: Var, value: int) -> int:
    total = int(form.const)
    for atom, coefficient in form.terms.items():
        if isinstance(atom, SizeAtom):
            own = value
        else:
            assert isinstance(atom, OpaqueAtom)
            inner = value_of(atom.inner, var, value)
            divides = atom.op is BinaryOp.FLOORDIV
            own = inner // int(atom.divisor) if divides else inner % int(atom.divisor)
        total += own * int(coefficient)
    return total


REFLECTIONS: list[Callable[[Expr, Any], Expr]] = [
    lambda i, last: te.abs(i),
    lambda i, last: last - te.abs(last - i),
    lambda i, last: te.select(i < 0, -i, i),
    lambda i, last: te.if_then_else(i > last, 2 * last - i, i),
    lambda i, last: te.select(i <= -1, -1 - i, i),
    lambda i, last: te.select(last >= i, i, 2 * last - i + 1),
    lambda i, last: te.maximum(i, -i),
    lambda i, last: te.select(i < 0, -i, te.select(i > last, 2 * last - i, i)),
    lambda i, last: te.if_then_else(i >= last, 2 * last - i, te.if_then_else(i <= 0, -i, i)),
]


def clamped(c: Chooser, index: Expr, last: Expr | int, depth: int = 2) -> Expr:
    """An index of a variable, between limits on all levels."""
    shifted = index + c.between(-4, 4)
    if not depth:
        return shifted
    inner = clamped(c, c.one_of([index, shifted // 2, last - index, index * 2]), last, depth - 1)
    limit = c.one_of([0, last, c.between(-3, 9), c.between(-3, 9) - index])
    apply = c.one_of([te.minimum, te.maximum])
    fixed = [te.clip(inner, 0, last), apply(inner, limit), apply(limit, inner)]
    return c.one_of([*fixed, *(reflect(inner, last) for reflect in REFLECTIONS)])


def elements(index: Expr, var: Var, length: int) -> Any:
    """An index of a variable, for so many values of it."""
    found = te.compute((length,), lambda v: substitute(index, {var: v}))
    return run([found], {})[found]


@pytest.mark.parametrize("symbolic", [False, True])
def test_intervals_hold_what_is_clamped_or_reflected(symbolic: bool) -> None:
    """An axis `i` of n elements is cut into tiles of `4*i0 + i1`, of which the first loop stays."""
    tile, fixed, found = 4, LoopAtom(0, "i.0"), 0
    for seed in range(300):
        c = Chooser.from_seed(seed)
        n, i = te.var("n"), te.var("i")
        length = c.between(1, 21)
        last = n - 1 if symbolic else length - 1
        index = clamped(c, i, last)
        axis = Interval(Affine(0, {fixed: tile}), tile)
        tiles = (n + tile - 1) // tile if symbolic else -(-length // tile)
        try:
            interval = evaluate(index, {i: axis}, {fixed: tiles}.__getitem__)
        except UnknownBoundError:
            continue
        if length > 8:
            found += interval.width < length
        for value, element in enumerate(elements(substitute(index, {n: te.const(length)}), i, length)):
            base = sum(
                coefficient * (value // tile if atom is fixed else length)
                for atom, coefficient in interval.base.terms.items()
            )
            start = base + interval.base.const
            assert start <= element < start + interval.width, str(index)
    assert found > 20


@pytest.mark.parametrize(
    ("index", "base", "width"),
    [
        (lambda i: te.clip(i - 1, 0, 63), -1, 8),
        (lambda i: te.clip(i + 1, 0, 63), 1, 8),
        (lambda i: te.clip(i + 9, 0, 63), 7, 10),
        (lambda i: te.clip(i - 9, 0, 63), -9, 10),
        (lambda i: te.maximum(0, i - 9), -9, 10),
        (lambda i: te.maximum(i - 3, 3 - i), -3, 8),
        *((lambda i, of=of: of(i, 63), 0, 8) for of in REFLECTIONS),
        (lambda i: te.select(i < 2, 2 - i, te.select(i > 65, 128 - i, i - 2)), -2, 8),
        (lambda i: te.select(i > 60, 123 - i, te.select(i < -2, -3 - i, i + 2)), 2, 8),
    ],
)
def test_what_is_clamped_or_reflected_is_a_halo_wider(
    index: Callable[[Expr], Expr], base: int, width: int
) -> None:
    i, tile = te.var("i"), LoopAtom(0, "i.0")
    found = evaluate(index(i), {i: Interval(Affine(0, {tile: 8}), 8)}, {tile: 8}.__getitem__)
    assert (dict(found.base.terms), found.base.const, found.width) == ({tile: 8}, base, width)


@pytest.mark.parametrize(
    "index",
    [
        lambda i: te.select(i < 5, -i, i),
        lambda i: te.select(i < 4, 9 - i, i),
        lambda i: te.select(te.var("n") < 0, -i, i),
        lambda i: te.select(i != 0, -i, i),
    ],
)
def test_other_choices_are_not_known(index: Callable[[Expr], Expr]) -> None:
    i, tile = te.var("i"), LoopAtom(0, "i.0")
    with pytest.raises(UnknownBoundError):
        evaluate(index(i), {i: Interval(Affine(0, {tile: 8}), 8)}, {tile: 8}.__getitem__)
