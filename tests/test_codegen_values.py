"""Dtypes: conversions, integer division, 16-bit floats, min and max, bool; on better and lesser machines."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.codegen.llvm.module import emit_llvm
from ansor.codegen.machine import Machine
from ansor.dtypes import DTYPES, int_range, is_float, is_integer, to_numpy
from ansor.ir.interp import run_nest
from ansor.ir.nest import Buffer, For, LoopKind, LoopNest, Store
from ansor.te.expr import Binary, BinaryOp, Cast, Expr, Load, Var, binary, call, const, select
from ansor.te.numeric import BINARY, apply_cast, quiet
from tests.codegen_helper import run

INTEGERS = [d for d in DTYPES if is_integer(d)]
FLOATS = [d for d in DTYPES if is_float(d)]


def machine(cpu: str) -> Machine:
    host = Machine.host()
    if cpu == "host":
        return host
    if host.arch != "x86_64":
        pytest.skip("another architecture")
    return Machine.of(host.triple, cpu)


def elementwise(
    arrays: list[np.ndarray], dtypes: list[str], result: str, build, cpu: str = "host", lanes: int = 8
):  # type: ignore[no-untyped-def]
    """`build(loads)` for each element, in vectors of `lanes`."""
    n = arrays[0].size // lanes * lanes
    buffers = [Buffer(f"x{k}", d, (n,)) for k, d in enumerate(dtypes)]
    out, i, j = Buffer("out", result, (n,)), Var("i"), Var("j")
    place: tuple[Expr, ...] = (i * lanes + j,)
    value = build(*[Load(b, place, b.dtype) for b in buffers])
    body = For(i, n // lanes, LoopKind.SERIAL, For(j, lanes, LoopKind.VECTORIZED, Store(out, place, value)))
    found = np.zeros(n, to_numpy(result))
    arrays = [np.ascontiguousarray(a[:n]) for a in arrays]
    run(LoopNest("kernel", (*buffers, out), (), body, (len(buffers),)), *arrays, found, machine=machine(cpu))
    return found, arrays


def values_of(dtype: str) -> np.ndarray:
    if dtype == "bool":
        return np.array([True, False] * 32)
    if is_integer(dtype):
        low, high = int_range(dtype)
        some = {low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 100, 127, high // 3}
        return np.array(sorted(v for v in some if low <= v <= high) * 8, to_numpy(dtype))
    return np.array([0.0, -0.0, 1.5, -2.5, 3.75, 100.2, -100.7, 126.9] * 8).astype(to_numpy(dtype))


@pytest.mark.parametrize("cpu", ["host", "x86-64"])
@pytest.mark.parametrize("source", DTYPES)
def test_every_cast(source: str, cpu: str) -> None:
    for result in DTYPES:
        if result == source:
            continue
        x = values_of(source)
        if is_float(source) and result.startswith("uint"):
            x = np.abs(x)  # out of range is undefined
        found, (given,) = elementwise([x], [source], result, lambda a, r=result: Cast(a, r), cpu)
        with quiet():
            expected = apply_cast(given, source, result)
        np.testing.assert_array_equal(found, expected, err_msg=f"{source} to {result}")


def test_data_are_divided_by_powers_of_two_without_a_division() -> None:
    """Rounded down, which takes one instruction and no correction for negative ones."""
    x, out, i = Buffer("x", "int32", (16,)), Buffer("out", "int32", (16,)), Var("i")
    for op, word in ((BinaryOp.FLOORDIV, "ashr <16 x i32>"), (BinaryOp.FLOORMOD, "and <16 x i32>")):
        store = Store(out, (i,), binary(op, Load(x, (i,), "int32"), 256))
        nest = LoopNest("kernel", (x, out), (), For(i, 16, LoopKind.VECTORIZED, store), (1,))
        text = emit_llvm(nest, Machine.host())
        assert word in text
        assert "sdiv" not in text
        assert "srem" not in text


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", [BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD])
def test_integer_division(op: BinaryOp, dtype: str) -> None:
    low, high = int_range(dtype)
    some = [v for v in (-7, -4, -3, -1, 0, 1, 2, 3, 5, 8, 100) if low <= v <= high]
    pairs = [(a, b) for a in (*some, low, low + 1, high) for b in some]
    x, y = (np.array(column, to_numpy(dtype)) for column in zip(*pairs, strict=True))
    for lanes in (1, 8):
        found, (p, q) = elementwise(
            [x, y], [dtype, dtype], dtype, lambda m, n: Binary(op, m, n, dtype), lanes=lanes
        )
        with quiet():
            np.testing.assert_array_equal(found, BINARY[op](p, q))
        top = high // 2 + 1  # the greatest power of two
        for divisor in (1, 3, 4, 7, 0, top) if low == 0 else (1, 3, 4, -3, -8, -1, 0, top, low):
            found, (p, _) = elementwise(
                [x, y], [dtype, dtype], dtype, lambda m, n, d=divisor: binary(op, m, d), lanes=lanes
            )
            with quiet():
                np.testing.assert_array_equal(found, BINARY[op](p, np.full_like(p, divisor)))


@pytest.mark.parametrize("op", [BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD])
def test_indices_divided_by_zero(op: BinaryOp) -> None:
    """A position computed by a division by a loop variable, by data, by a size, in loops and in lanes."""
    x, y = Buffer("x", "int64", (64,)), Buffer("y", "int64", (64,))
    i, j, size = Var("i"), Var("j"), Var("n")
    divisors = [j, j - 3, Load(y, (j,), "int64"), size]
    for divisor in divisors:
        for kind in (LoopKind.SERIAL, LoopKind.VECTORIZED):
            for dividend in (i * 9 + j, j * 5 - i * 3, Load(x, (j,), "int64")):
                out = Buffer("out", "int64", (8, 8))
                if divisor.dtype != dividend.dtype:
                    dividend = (
                        Cast(dividend, "int64") if divisor.dtype == "int64" else Cast(dividend, "int32")
                    )
                quotient = Cast(Binary(op, dividend, divisor, divisor.dtype), "int64")
                body = For(i, 8, LoopKind.SERIAL, For(j, 8, kind, Store(out, (i, j), quotient)))
                nest = LoopNest("kernel", (x, y, out), (size,), body, (2,))
                data = np.array([0, -(2**63), -1, 5, 2**63 - 1, -7, 8, 3] * 8)
                by = np.array([0, -1, 2, -1, 0, -1, 1, -3] * 8)
                found, expected = np.zeros((8, 8), np.int64), np.zeros((8, 8), np.int64)
                run(nest, data, by, found, sizes=[0])
                run_nest(nest, [data, by, expected], [0])
                np.testing.assert_array_equal(found, expected, err_msg=str(nest))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype: str) -> None:
    low, high = int_range(dtype)
    x = np.array([low, high, 0, 1, high - 1, 5, 6, 7] * 2, to_numpy(dtype))
    for op in (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX):
        found, (p, q) = elementwise(
            [x, x[::-1].copy()], [dtype, dtype], dtype, lambda a, b, o=op: Binary(o, a, b, dtype)
        )
        np.testing.assert_array_equal(found, BINARY[op](p, q))


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "uint64", "bool"])
def test_comparisons(op: str, dtype: str) -> None:
    x = values_of(dtype)
    if is_float(dtype):
        x[3] = np.nan
    y = np.roll(x, 3)
    y[::5] = x[::5]
    found, (p, q) = elementwise(
        [x, y], [dtype, dtype], "bool", lambda a, b: Binary(BinaryOp(op), a, b, "bool")
    )
    with quiet():
        np.testing.assert_array_equal(found, BINARY[BinaryOp(op)](p, q))


@pytest.mark.parametrize("cpu", ["host", "x86-64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_floats_convert_exactly(dtype: str, cpu: str) -> None:
    """All 65536 bit patterns to float32 and back, and float32 values that need rounding."""
    x = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(dtype))
    wide, _ = elementwise([x], [dtype], "float32", lambda a: Cast(a, "float32"), cpu)
    with quiet():
        np.testing.assert_array_equal(wide, x.astype(np.float32))
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    halfway = (np.arange(1 << 16, dtype=np.uint32) << 16) + np.uint32(0x8000)
    near_half = np.arange(0x33000000, 0x48000000, 0x1000, dtype=np.uint32)
    f = np.concatenate([bits, halfway, halfway + 1, halfway - 1, near_half]).view(np.float32)
    found, (given,) = elementwise([f], ["float32"], dtype, lambda a: Cast(a, dtype), cpu)
    with quiet():
        expected = given.astype(to_numpy(dtype))
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    assert same.all()


@pytest.mark.parametrize("cpu", ["host", "x86-64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_doubles_round_to_sixteen_bits_once(dtype: str, cpu: str) -> None:
    unit = 2.0 ** (-11 if dtype == "float16" else -8)
    d = np.array(
        [1 + unit, 1 + unit + 1e-12, 1 + unit - 1e-12, -1 - unit - 1e-12, 1e300, 1e-300, 3.0, -0.0] * 2
    )
    found, (given,) = elementwise([d], ["float64"], dtype, lambda a: Cast(a, dtype), cpu)
    with quiet():
        expected = given.astype(to_numpy(dtype))
    if dtype == "bfloat16":  # ml_dtypes goes through float32; only the ties differ from rounding once
        expected[1::8], expected[2::8], expected[3::8] = 1 + 2 * unit, 1, -1 - 2 * unit
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("cpu", ["host", "x86-64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_arithmetic_rounds_after_each_operation(dtype: str, cpu: str) -> None:
    """But for products that the machine adds to float16 in one instruction, as to float32."""
    rng = np.random.default_rng(2)
    a, b, c = ((rng.normal(size=4096) * 8).astype(to_numpy(dtype)) for _ in range(3))
    found, (x, y, z) = elementwise([a, b, c], [dtype] * 3, dtype, lambda p, q, r: p * q + r, cpu)
    expected = x * y + z
    if dtype == "float16" and machine(cpu).has_f16_arithmetic:
        fused = (x.astype(np.float64) * y.astype(np.float64) + z.astype(np.float64)).astype(np.float16)
        expected = np.where(found == expected, expected, fused)
    np.testing.assert_array_equal(found, expected)
    found, (x, y, z) = elementwise([a, b, c], [dtype] * 3, dtype, lambda p, q, r: p / q - r, cpu)
    np.testing.assert_array_equal(found, x / y - z)


@pytest.mark.parametrize(("dtype", "ties"), [("float16", 0xFFF - (112 << 23)), ("bfloat16", 0x7FFF)])
def test_sixteen_bit_results_are_rounded_once_each(dtype: str, ties: int) -> None:
    """By integers, of which rounding adds `ties`; the bits of a bfloat16 are taken as they are."""
    x, y, out, i = *(Buffer(name, dtype, (4,)) for name in "xy"), Buffer("out", dtype, (4,)), Var("i")
    a, b = (Load(buffer, (i,), dtype) for buffer in (x, y))
    target = Machine.of("x86_64-linux-gnu", "x86-64")
    for value, roundings in ((a + b, 1), (a * b + b, 2), (call("abs", a), int(dtype == "float16"))):
        loop = For(i, 4, LoopKind.VECTORIZED, Store(out, (i,), value))
        text = emit_llvm(LoopNest("kernel", (x, y, out), (), loop, (2,)), target)
        assert text.count(f"splat (i32 {ties})") == roundings, text


@pytest.mark.parametrize("dtype", FLOATS)
def test_minimum_of_nan_is_an_operand(dtype: str) -> None:
    x = np.array([1.0, np.nan, 2.0, np.nan] * 4).astype(to_numpy(dtype))
    y = np.array([np.nan, 1.0, 3.0, np.nan] * 4).astype(to_numpy(dtype))
    for op in (BinaryOp.MIN, BinaryOp.MAX):
        found, _ = elementwise([x, y], [dtype] * 2, dtype, lambda a, b, o=op: Binary(o, a, b, dtype))
        assert np.all((found == x) | (found == y) | np.isnan(found))
        np.testing.assert_array_equal(found[2::4], BINARY[op](x[2::4], y[2::4]))
        assert np.isnan(found[3::4]).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_stays_nan_beside_a_constant(dtype: str) -> None:
    """On whichever side the constant was written."""
    x = np.array([1.0, np.nan, -2.0, np.nan] * 4).astype(to_numpy(dtype))
    for op in (BinaryOp.MIN, BinaryOp.MAX):
        for swapped in (False, True):

            def extreme(a: Expr, op: BinaryOp = op, swapped: bool = swapped) -> Expr:
                pair = (const(0.0, dtype), a) if swapped else (a, const(0.0, dtype))
                return Binary(op, *pair, dtype)

            found, _ = elementwise([x], [dtype], dtype, extreme)
            expected = BINARY[op](x, np.zeros_like(x))
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_loop_variables_wrap_as_values_of_their_dtype() -> None:
    out, i = Buffer("out", "int8", (300,)), Var("i")
    nest = LoopNest(
        "kernel", (out,), (), For(i, 300, LoopKind.VECTORIZED, Store(out, (i,), Cast(i * 3, "int8"))), (0,)
    )
    found = np.zeros(300, np.int8)
    run(nest, found)
    np.testing.assert_array_equal(found, (np.arange(300) * 3).astype(np.int8))


def test_constants_of_every_dtype() -> None:
    for dtype in DTYPES:
        low, high = int_range(dtype) if not is_float(dtype) else (-1.1, 65504.0)
        for value in (low, high):
            out, i = Buffer("out", dtype, (5,)), Var("i")
            stored = const(bool(value), dtype) if dtype == "bool" else const(value, dtype)
            nest = LoopNest("k", (out,), (), For(i, 5, LoopKind.VECTORIZED, Store(out, (i,), stored)), (0,))
            found = np.zeros(5, to_numpy(dtype))
            run(nest, found)
            np.testing.assert_array_equal(found, np.full(5, value).astype(to_numpy(dtype)))


@pytest.mark.parametrize("cpu", ["host", "x86-64"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_copies_of_16_bit_floats_keep_every_bit(dtype: str, cpu: str) -> None:
    """NaN payloads and denormals too, also behind the condition of a padding."""
    x = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(dtype))
    found, _ = elementwise([x], [dtype], dtype, lambda a: a, cpu=cpu)
    assert np.array_equal(found.view(np.uint16), x.view(np.uint16))
    padded, _ = elementwise(
        [x], [dtype], dtype, lambda a: select(a.indices[0] >= 77, a, const(0, dtype), lazy=True), cpu=cpu
    )
    expected = np.where(np.arange(1 << 16) >= 77, x.view(np.uint16), 0)
    assert np.array_equal(padded.view(np.uint16), expected)
