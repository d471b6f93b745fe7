"""The estimate of how much code statements become."""

from __future__ import annotations

import pytest

from ansor.ir.code_size import instructions, own_instructions, vectors_of
from ansor.ir.nest import Buffer, For, Let, LoopKind, Store
from ansor.te.expr import BinaryOp, Expr, Load, Var, binary, call, cast, const, select

F32 = "float32"
X, Y = Buffer("X", F32, (64,)), Buffer("Y", F32, (64,))
POINT, LANE = Var("i"), Var("j")


def load(buffer: Buffer, index: Expr) -> Load:
    return Load(buffer, (index,), buffer.dtype)


x, y = load(X, POINT), load(Y, LANE * 4 + POINT)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (const(1.0, F32), 0),
        (cast(POINT * 3 + LANE, F32), 0),
        (x, 1),
        (x + y, 3),
        (x * y, 3),
        (x * y + x, 4),
        (x - x * y, 4),
        (cast(x, "int32") * cast(y, "int32") + cast(x, "int32"), 8),
        (cast(x * y, "float64") + const(1.0, "float64"), 5),
        (binary(BinaryOp.MAX, x, const(0.0, F32)), 2),
        (call("sqrt", x), 2),
        (call("fma", x, y, x), 4),
    ],
)
def test_what_values_count(value: Expr, expected: int) -> None:
    """Loads and operations; a product that is added counts once, what loop variables decide not at all."""
    assert instructions(value) == expected


def test_a_function_counts_as_its_polynomial() -> None:
    for name in ("exp", "log", "tanh", "sigmoid", "erf"):
        assert 15 <= instructions(call(name, x)) <= 60


def test_conditions_on_loop_variables_count_nothing() -> None:
    padded = select(binary(BinaryOp.LT, POINT * 4 + LANE, const(60)), x, const(0.0, F32), lazy=True)
    assert instructions(padded) == instructions(x) + 1
    assert instructions(select(binary(BinaryOp.LT, POINT, const(60)), x + y, x)) == instructions(x + y) + 1
    assert instructions(select(x < y, x, y)) == 6


def test_a_shared_node_counts_as_often_as_it_is_used() -> None:
    value: Expr = x
    for _ in range(500):
        value = value + value
    assert instructions(value) == 2**501 - 1


def test_statements_store_what_they_compute() -> None:
    assert own_instructions(Store(X, (POINT,), x + y)) == 4
    assert own_instructions(Store(X, (POINT,), const(0.0, F32))) == 1
    together = Var("t", F32)
    stores = Let(together, x + y, Store(X, (POINT,), together))
    assert own_instructions(stores) == 3
    assert own_instructions(stores.body) == 1


@pytest.mark.parametrize(
    ("dtype", "lanes", "expected"),
    [
        (F32, 1, 1),
        (F32, 16, 1),
        (F32, 17, 2),
        (F32, 256, 16),
        (F32, 272, 1),
        ("float16", 32, 2),
        ("int8", 65, 2),
    ],
)
def test_vectors_of_a_loop(dtype: str, lanes: int, expected: int) -> None:
    """Of 512 bits; narrow floats are computed with as float32, and a long loop is one over vectors."""
    store = Store(Buffer("Z", dtype, (lanes,)), (LANE,), const(0, dtype))
    assert vectors_of(For(LANE, lanes, LoopKind.VECTORIZED, store), 512) == expected
