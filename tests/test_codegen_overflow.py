"""Values and conditions made of axes wrap as all integers do, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansor import te
from ansor.codegen.overflow import Overflow
from ansor.ir.bounds import Bounds
from ansor.te.expr import Expr, Var
from tests.program_laws import Case, check_all

LARGE = 1000000007

ELEMENTS: dict[str, Callable[..., Any]] = {
    "a wider integer": lambda i, j: te.cast(i * LARGE, "int64"),
    "a product of axes": lambda i, j: te.cast((i + 60000) * (j + 60000), "int64"),
    "a product of three": lambda i, j: te.cast((i + 60000) * (j + 60000) * (i + 50000), "int64") // 3,
    "a float": lambda i, j: te.cast(i * LARGE, "float64"),
    "a quotient": lambda i, j: (i * LARGE + j) // 10,
    "a remainder": lambda i, j: (j - i * LARGE) % 10,
    "a quotient towards zero": lambda i, j: te.truncdiv(i * LARGE - j, 7),
    "a remainder towards zero": lambda i, j: te.truncmod(i * LARGE - j, 7),
    "the lesser": lambda i, j: te.minimum(i * LARGE, j),
    "the greater": lambda i, j: te.maximum(j * LARGE, i),
    "there and back": lambda i, j: te.cast(i * LARGE + j - i * LARGE, "int64"),
    "a choice of one": lambda i, j: te.cast(te.select(i > j, i * LARGE, j), "int64"),
    "a condition": lambda i, j: te.select(i * LARGE < j, 1, 2),
    "a lazy condition": lambda i, j: te.if_then_else((i * LARGE + j) % 7 < 3, i, j),
    "an equality": lambda i, j: te.cast(i * (1 << 30) == 0, "int32"),
    "a large constant": lambda i, j: te.cast(i + (2**31 - 3), "int64"),
}


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("what", ELEMENTS)
def test_arithmetic_on_axes_wraps(what: str, vector: bool) -> None:
    c = te.compute((7, 16), ELEMENTS[what], name="C")
    s = te.create_schedule(c)
    if vector:
        s[c].vectorize(c.op.axis[1])
    check_all(Case.of(s.state))


def test_what_may_wrap_is_told_by_the_ranges_of_loops() -> None:
    i, n, data = Var("i"), Var("n"), Var("data")
    overflow = Overflow(Bounds({i: (0, 99), n: (1, None)}))
    whole = i * 21691754
    fits: list[Expr] = [whole, whole // 3, n * i, n * n - 5, i % 4 * 500000000, te.truncdiv(-i, 7), -1 - data]
    wraps: list[Expr] = [i * 21691755, -2 - data, data + i, te.floormod(-i, 7) * 500000000, whole * -2]
    assert [overflow.may_wrap(expr) for expr in fits] == [False] * len(fits)
    assert [overflow.may_wrap(expr) for expr in wraps] == [True] * len(wraps)


INDICES: dict[str, Callable[..., Any]] = {
    "a remainder of data": lambda i, key: te.floormod(key * LARGE + 12345, 100),
    "a quotient of data": lambda i, key: te.floordiv(key * LARGE, 1 << 26) + 32,
    "clipped data": lambda i, key: te.maximum(te.minimum(key + (2**31 - 2), 99), 0),
    "a remainder of axes": lambda i, key: te.floormod(i * LARGE + 12345, 100),
}


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("what", INDICES)
def test_indices_wrap_before_they_are_divided_or_compared(what: str, vector: bool) -> None:
    table, keys = te.placeholder((100,), name="T"), te.placeholder((7, 16), "int32", "K")
    c = te.compute((7, 16), lambda i, j: table[INDICES[what](i, keys[i, j])], name="C")
    s = te.create_schedule(c)
    if vector:
        s[c].vectorize(c.op.axis[1])
    check_all(Case.of(s.state))
