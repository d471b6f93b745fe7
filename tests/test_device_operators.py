"""Every operator of te in every dtype in device code: run by OpenCL, compiled by CUDA's compiler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from ansor.codegen.c import CUDA, OPENCL, emit_c, split_kernels
from ansor.dtypes import DTYPES, int_range, is_integer, to_numpy
from ansor.ir.nest import Buffer, For, If, LoopNest, Seq, Stmt, seq
from ansor.te.expr import Binary, BinaryOp, Cast, Const, Expr, Var, binary, const
from ansor.te.numeric import BINARY, apply_cast, quiet
from tests.breadth_expressions import SHAPE, Operator, operands, operators
from tests.cuda_on_host import Run, each_language
from tests.device_nests import SERIAL, launch, load, store

ULPS = {"exp": 3, "log": 3, "tanh": 5, "erf": 16, "rsqrt": 2, "pow": 16, "sigmoid": 8, "sin": 4, "cos": 4}
ULPS |= {"exp2": 3, "expm1": 3, "log2": 3, "log1p": 2, "tan": 5, "atan": 5, "sinh": 4, "cosh": 4}
"""The accuracy that OpenCL asks of its functions; sigmoid is made of an exponential and a quotient."""


def elementwise(dtype: str, chosen: Sequence[Operator]) -> LoopNest:
    """A row for each block, an element for each thread."""
    row, column = Var("i"), Var("j")
    inputs = [Buffer(f"X{number}", dtype, SHAPE) for number in range(3)]
    outputs = [Buffer(f"Y{number}", op.result, SHAPE) for number, op in enumerate(chosen)]
    stores: list[Stmt] = [
        store(y, (row, column), op.build(*(load(x, row, column) for x in inputs[: op.arity])))
        for op, y in zip(chosen, outputs, strict=True)
    ]
    params = (*inputs, *outputs)
    body = launch(Seq(tuple(stores)), bx=(row, SHAPE[0]), tx=(column, SHAPE[1]))
    return LoopNest("kernel", params, (), body, tuple(range(3, len(params))))


@pytest.mark.parametrize("dtype", DTYPES)
@each_language
def test_every_operator(run: Run, dtype: str) -> None:
    chosen = [replace(op, ulps=max(op.ulps, ULPS.get(op.name, 0))) for op in operators(dtype)]
    given = operands(dtype)
    found = [np.zeros(SHAPE, to_numpy(op.result)) for op in chosen]
    run(elementwise(dtype, chosen), *given, *found)
    faults = [op.fault(result, given) for op, result in zip(chosen, found, strict=True)]
    assert [fault for fault in faults if fault is not None] == []


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = int_range(dtype)
    some = [v for v in (-7, -4, -3, -1, 0, 1, 2, 3, 5, 8, 100) if low <= v <= high]
    both = [(a, b) for a in (*some, low, low + 1, high) for b in some]
    x, y = (np.array(column, to_numpy(dtype)) for column in zip(*both, strict=True))
    return x, y


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if is_integer(dtype)])
@each_language
def test_divisions_by_anything(run: Run, dtype: str) -> None:
    """By data, zero and -1 among them, and by constants."""
    x, y = pairs(dtype)
    a, b = (Buffer(name, dtype, x.shape) for name in "AB")
    i, signed = Var("i"), int_range(dtype)[0] < 0
    stores: list[Stmt] = []
    outputs: list[Buffer] = []
    expected: list[np.ndarray] = []
    for op in (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD):
        constants = (3, 4, -3, -8, -1, 0) if signed else (3, 4, 7, 0)
        values: list[tuple[Expr, np.ndarray]] = [(load(b, i), y)]
        values += [(const(divisor, dtype), np.full_like(y, divisor)) for divisor in constants]
        for divisor_expr, divisors in values:
            out = Buffer(f"out{len(outputs)}", dtype, x.shape)
            outputs.append(out)
            stores.append(store(out, (i,), binary(op, load(a, i), divisor_expr)))
            with quiet():
                expected.append(BINARY[op](x, divisors))
    params = (a, b, *outputs)
    nest = LoopNest(
        "kernel", params, (), launch(Seq(tuple(stores)), tx=(i, len(x))), tuple(range(2, len(params)))
    )
    found = [np.zeros_like(x) for _ in outputs]
    run(nest, x, y, *found)
    for stmt, result, right in zip(stores, found, expected, strict=True):
        np.testing.assert_array_equal(result, right, err_msg=str(stmt.value))  # type: ignore[union-attr]


ON_AXES = {
    "a wider integer": lambda i, j: Cast(i * 1000000007, "int64"),
    "a product of axes": lambda i, j: Cast((i + 60000) * (j + 60000), "int64"),
    "a quotient": lambda i, j: (i * 1000000007 + j) // 10,
    "a remainder": lambda i, j: (j - i * 1000000007) % 10,
    "of negative numbers": lambda i, j: (j - i * 5) // 7 + (j - i * 5) % 7 * 100,
    "by powers of two": lambda i, j: (j - i * 5) // 8 + (j - i * 5) % 8 * 100,
    "by an axis": lambda i, j: (j + 3) // i + (j + 3) % i * 100,
    "towards zero": lambda i, j: binary(BinaryOp.TRUNCDIV, j - i * 5, const(7)),
    "the lesser": lambda i, j: Binary(BinaryOp.MIN, i * 1000000007, j, "int32"),
    "an equality": lambda i, j: Cast(i * (1 << 30) == 0, "int32"),
}


@pytest.mark.parametrize("what", ON_AXES)
@each_language
def test_arithmetic_on_axes_wraps(run: Run, what: str) -> None:
    i, j = Var("i"), Var("j")
    value = ON_AXES[what](i, j)
    out = Buffer("out", value.dtype, (7, 16))
    found, expected = (np.zeros((7, 16), to_numpy(value.dtype)) for _ in range(2))
    rows, columns = np.meshgrid(np.arange(7, dtype=np.int32), np.arange(16, dtype=np.int32), indexing="ij")
    with quiet():
        expected[:] = evaluated(value, {i: rows, j: columns})
    body = For(j, 16, SERIAL, store(out, (i, j), value))
    run(LoopNest("kernel", (out,), (), launch(body, tx=(i, 7)), (0,)), found)
    np.testing.assert_array_equal(found, expected)


def evaluated(expr: Expr, values: dict[Var, np.ndarray]) -> np.ndarray:
    """By te's numeric semantics, with every operation wrapped."""
    match expr:
        case Const(value=value, dtype=dtype):
            return np.asarray(value, to_numpy(dtype))
        case Var():
            return values[expr]
        case Binary(op=op, a=a, b=b):
            return BINARY[op](evaluated(a, values), evaluated(b, values))
        case Cast(a=a, dtype=dtype):
            return apply_cast(evaluated(a, values), a.dtype, dtype)
        case _:
            raise AssertionError(expr)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@each_language
def test_every_number_of_16_bits(run: Run, dtype: str) -> None:
    """To float32 and back, and what lies between two of them, which rounds to the nearer, or the even one."""
    count = 1 << 16
    bits = np.arange(count, dtype=np.uint16)
    row, column = Var("i"), Var("j")
    i = row * 256 + column
    x, y = Buffer("X", dtype, (count,)), Buffer("Y", "float32", (count,))
    between, z = Buffer("between", "float32", (3, count)), Buffer("Z", dtype, (3, count))
    step = Var("k")
    body = seq(
        store(y, (i,), Cast(load(x, i), "float32")),
        For(step, 3, SERIAL, store(z, (step, i), Cast(load(between, step, i), dtype))),
    )
    nest = LoopNest("kernel", (x, between, y, z), (), launch(body, bx=(row, 256), tx=(column, 256)), (2, 3))
    given = bits.view(to_numpy(dtype))
    with quiet():
        wide = given.astype(np.float32)
        upper = np.concatenate([wide[1:], wide[:1]])
        middle = np.where(np.isfinite(upper), wide + (upper - wide) / 2, wide).astype(np.float32)
        floats = np.stack([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, wide)])
        expected = floats.astype(to_numpy(dtype))
    found_wide, found = np.zeros(count, np.float32), np.zeros((3, count), to_numpy(dtype))
    run(nest, given, floats, found_wide, found)
    np.testing.assert_array_equal(found_wide, wide)
    np.testing.assert_array_equal(np.signbit(found_wide), np.signbit(wide))
    nan = np.isnan(floats)
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    np.testing.assert_array_equal(found.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])


@pytest.mark.parametrize("dtype", DTYPES)
@each_language
def test_constants(run: Run, dtype: str) -> None:
    """Extremes, denormals and what is no number, as values and as elements."""
    values: list[float | int | bool]
    if dtype == "bool":
        values = [True, False]
    elif is_integer(dtype):
        low, high = int_range(dtype)
        values = [low, low + 1, 0, 1, high]
    else:
        values = [0.0, -0.0, 0.1, -1e-5, 1e4, 6e-8, 1e-40, float("inf"), -float("inf"), float("nan")]
    x, out = Buffer("X", "bool", (1,)), Buffer("out", dtype, (2, len(values)))
    i = Var("i")
    stores: list[Stmt] = []
    for number, value in enumerate(values):
        stores.append(store(out, (0, number), Const(value, dtype)))
        other = store(out, (1, number), Const(value, dtype))
        stores.append(If(load(x, i), other, store(out, (1, number), load(out, 0, 0))))
    nest = LoopNest("kernel", (x, out), (), launch(Seq(tuple(stores)), tx=(i, 1)), (1,))
    found = np.zeros((2, len(values)), to_numpy(dtype))
    run(nest, np.array([True]), found)
    with quiet():
        expected = np.asarray([np.asarray(v).astype(to_numpy(dtype)) for v in values])
    np.testing.assert_array_equal(found.view(np.uint8), np.stack([expected, expected]).view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_both_languages_write_every_operator(dtype: str) -> None:
    """Without OpenCL, too: what differs is only what the languages write differently."""
    chosen = operators(dtype)
    texts = [emit_c(split_kernels(elementwise(dtype, chosen)), dialect) for dialect in (CUDA, OPENCL)]
    assert len({text.count("] = ") for text in texts}) == 1
    assert all(f"Y{len(chosen) - 1}[" in text for text in texts)
