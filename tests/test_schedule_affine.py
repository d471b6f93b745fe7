"""Forms of loops: digits of an index, put together again."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.schedule.affine import Affine, OpaqueAtom, SizeAtom, evaluate, joined
from ansor.te.expr import Binary, BinaryOp, Const, Expr, Var

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
