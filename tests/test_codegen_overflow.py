"""Values and conditions made of axes wrap as all integers do, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ansor import te
from ansor.codegen.overflow import Overflow
from ansor.ir.bounds import Bounds
from ansor.schedule.bounds import infer_bounds
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
    "bits of both": lambda i, j: (i * LARGE) ^ ((j * LARGE) & ~i) | (j << 3),
    "bits by axes": lambda i, j: te.cast((i * LARGE) >> j, "int64") + te.cast((i - 3) << (j + 20), "int64"),
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


def test_indices_turn_that_may_wrap_to_others_in_bounds() -> None:
    i, n, data = Var("i"), Var("n"), Var("data")
    overflow = Overflow(Bounds({i: (0, 7), n: (1, None)}))
    near = i * 500000000
    turns: list[Expr] = [data * 3, data * data, data + data, i * 613566757, -2 - near - data]
    stays: list[Expr] = [data + i - 1, data * 3 + i, i * 613566756, -1 - near * 2, n * i + n * n, data - n]
    assert [overflow.turns(expr) for expr in turns] == [True] * len(turns)
    assert [overflow.turns(expr) for expr in stays] == [False] * len(stays)


INDICES: dict[str, Callable[..., Any]] = {
    "a remainder of data": lambda i, key: te.floormod(key * LARGE + 12345, 100),
    "a quotient of data": lambda i, key: te.floordiv(key * LARGE, 1 << 26) + 32,
    "bits of data": lambda i, key: (((key ^ i) * LARGE) ^ (key >> i)) & 63,
    "a bit by data": lambda i, key: (1 << (key + 32)) & 64,
    "high bits of data": lambda i, key: ((key << 26) >> 26) + 32,
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


INLINED: dict[str, Callable[..., Any]] = {
    "a quotient": lambda i: (i * LARGE) // (1 << 26) + 32,
    "a remainder": lambda i: (i * 400000000) % 100,
    "a remainder of multiples": lambda i: (i * 700000000) % 7,
    "a product": lambda i: i * 2 * (2**31 - 1) + 32,
    "a sum": lambda i: te.if_then_else(i % 5 == 0, i * 858993459 + 32, 1),
    "more bits": lambda i: te.cast(te.cast(i * LARGE, "int64") // (1 << 26) + 32, "int32"),
}


@pytest.mark.parametrize("at", ["root", "inside", "pieces"])
@pytest.mark.parametrize("what", INLINED)
def test_values_that_wrap_do_so_in_indices_that_they_are_inlined_into(what: str, at: str) -> None:
    table = te.placeholder((100,), name="T")
    where = te.compute((16,), lambda i: INLINED[what](i), name="H")
    doubled = te.compute((100,), lambda j: table[j] * 2.0, name="T2")
    c = te.compute((16,), lambda i: doubled[where[i]], name="C")
    s = te.create_schedule(c)
    s[where].compute_inline()
    outer, inner = s[c].split(c.op.axis[0], factor=8)
    if at != "root":
        s[doubled].compute_at(s[c], outer if at == "pieces" else inner)
    check_all(Case.of(s.state))


GREATEST = 2**31 - 1

TURNS: dict[str, Callable[..., Any]] = {
    "a product by a constant": lambda j, key: (key | GREATEST) * 2 + 2 + j,
    "a product of data": lambda j, key: (key | GREATEST) * (key | GREATEST) + j,
    "a shift": lambda j, key: ((key | GREATEST) << 30) + (1 << 30) + j,
    "a sum": lambda j, key: (key | GREATEST) + (key | GREATEST) + 2 + (15 - j),
    "a difference": lambda j, key: (key & 1 | -(2**31)) - (key & 1 | GREATEST) + 2 + j,
    "an index of int64": lambda j, key: (
        (te.cast(key, "int64") | (2**63 - 1)) * (te.cast(key, "int64") | (2**63 - 1)) + te.cast(j, "int64")
    ),
}


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("what", TURNS)
def test_indices_made_of_data_wrap(what: str, vector: bool) -> None:
    """Wherever what they address is computed."""
    table, keys = te.placeholder((3, 100), name="T"), te.placeholder((7,), "int32", "K")
    doubled = te.compute((3, 100), lambda r, i: table[r, i] * 2.0, name="D")
    c = te.compute((3, 7, 16), lambda r, i, j: doubled[r, TURNS[what](j, keys[i])], name="C")
    for at in (None, 0, 1):
        s = te.create_schedule(c)
        if at is not None:
            s[doubled].compute_at(s[c], c.op.axis[at])
        if vector:
            s[c].vectorize(c.op.axis[2])
        check_all(Case.of(s.state))


def test_sums_that_wrap_address_what_they_are() -> None:
    """Where a choice leaves out what would be out of bounds."""
    table = te.placeholder((3, 100), name="T")
    where = te.compute((16,), lambda i: i * 858993459 + 32, name="H")
    c = te.compute((3, 16), lambda r, i: te.if_then_else(i % 5 == 0, table[r, where[i]], 0.0), name="C")
    for vector in (False, True):
        s = te.create_schedule(c)
        s[where].compute_inline()
        if vector:
            s[c].vectorize(c.op.axis[1])
        check_all(Case.of(s.state))


def test_regions_of_indices_that_fit_stay_small() -> None:
    a = te.placeholder((1 << 20,), name="A")
    b = te.compute((1 << 20,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((1 << 10,), lambda i: b[(i * 2097151) // (1 << 21) + 32], name="C")
    region = infer_bounds(te.create_schedule(c).state).stages[1].region
    assert [interval.width for interval in region] == [1023]


BITS_OF_AXES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "high bits": (lambda i: i >> 3, 2),
    "low bits": (lambda i: (i & 3) + 5, 4),
    "a multiple": (lambda i: i << 2, 61),
    "the last first": (lambda i: ~i + 16, 16),
    "one bit of many": (lambda i: i ^ 1, 64),
    "any bits": (lambda i: (i << 1) | (i & 1), 64),
}


@pytest.mark.parametrize("what", BITS_OF_AXES)
def test_regions_of_bits_are_small_or_whole(what: str) -> None:
    index, width = BITS_OF_AXES[what]
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((16,), lambda i: b[index(i)], name="C")
    state = te.create_schedule(c).state
    (region,) = infer_bounds(state).stages[1].region
    assert region.width == width
    s = te.create_schedule(c)
    _, inner = s[c].split(c.op.axis[0], factor=8)
    s[b].compute_at(s[c], inner)
    check_all(Case.of(s.state))


@pytest.mark.parametrize("at", ["root", "inside"])
def test_bits_of_data_and_reductions_of_bits(at: str) -> None:
    """Weights of 4 bits, two in a byte, of which a table gives the values; and their parity."""
    packed, table = te.placeholder((6, 16), "uint8", "W"), te.placeholder((16,), name="T")
    doubled = te.compute((16,), lambda i: table[i] * 2.0, name="D")
    nibble = te.compute(
        (6, 32), lambda i, j: (packed[i, j >> 1] >> te.cast((j & 1) << 2, "uint8")) & 15, name="N"
    )
    looked_up = te.compute((6, 32), lambda i, j: doubled[nibble[i, j]], name="L")
    parity = te.comm_reducer(lambda x, y: x ^ y, lambda dtype: te.const(0, dtype), name="parity")
    k = te.reduce_axis((0, 32), name="k")
    bits = te.compute((6,), lambda i: parity(nibble[i, k] & 5, axis=k), name="P")
    s = te.create_schedule([looked_up, bits])
    s[nibble].compute_inline()
    _, inner = s[looked_up].split(looked_up.op.axis[1], factor=8)
    s[looked_up].vectorize(inner)
    if at == "inside":
        s[doubled].compute_at(s[looked_up], looked_up.op.axis[0])
    check_all(Case.of(s.state))
