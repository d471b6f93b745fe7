"""Register tiles whose rows are no whole vectors: the lanes beyond them are computed, and are nobody's."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from ansor.codegen.llvm import emit_llvm
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from ansor.ir.nest import Alloc, Buffer, For, If, LoopKind, LoopNest, Stmt, Store, seq
from ansor.ir.rewriting import fresh_copy
from ansor.schedule.lowering import lower
from ansor.te.expr import BinaryOp, Expr, Load, Var, binary, cast, const
from tests.codegen_helper import AVX512, run
from tests.test_intrinsics import product, tensorized

F32 = "float32"
ROWS, STEPS = 3, 9
S, U, V = LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.VECTORIZED
Place = Callable[[Var, Var], tuple[Expr, ...]]
WIDTHS = [3, 5, 7, 11, 15, 21, 31, 45]


def tile(width: int, dtype: str, op: BinaryOp, first: int = 0, above: int = 0, lanes: int = 0) -> LoopNest:
    """C[i, j] += A[i, k] `op` B[k, j] in a tile, `first <= j < lanes` (0: all), `j + k` at least `above`."""
    a, b = Buffer("A", dtype, (ROWS, STEPS)), Buffer("B", dtype, (STEPS, width))
    c, acc = Buffer("C", dtype, (ROWS, width)), Buffer("acc", dtype, (ROWS, width), "register")
    i, j, k = Var("i"), Var("j"), Var("k")
    sum_ = Load(acc, (i, j), dtype) + binary(op, Load(a, (i, k), dtype), Load(b, (k, j), dtype))
    update: Stmt = Store(acc, (i, j), sum_)
    if above:
        update = If(binary(BinaryOp.GE, j + k, above), update)
    if first:
        update = If(binary(BinaryOp.GE, j, first), update)

    def loops(inner: Stmt, extent: int = width) -> Stmt:
        return fresh_copy(For(i, ROWS, U, For(j, extent, V, inner)))

    before, after = Store(acc, (i, j), Load(c, (i, j), dtype)), Store(c, (i, j), Load(acc, (i, j), dtype))
    steps = For(k, STEPS, S, loops(update, lanes or width))
    return LoopNest("tile", (a, b, c), (), Alloc(acc, seq(loops(before), steps, loops(after))), (2,))


def arrays(width: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(width)
    shapes = (ROWS, STEPS), (STEPS, width), (ROWS, width)
    a, b, c = (rng.integers(1, 9, shape).astype(dtype) for shape in shapes)
    return a, b, c


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [F32, "float64", "int32", "float16", "int8", "uint16"])
def test_rows_of_any_width(width: int, dtype: str) -> None:
    a, b, c = arrays(width, dtype)
    expected = c + a @ b
    run(tile(width, dtype, BinaryOp.MUL), a, b, c)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("first", "above"), [(1, 0), (2, 0), (0, 3), (0, 12), (1, 5)])
def test_lanes_that_a_step_leaves_out_keep_what_they_have(width: int, first: int, above: int) -> None:
    """They are elements, unlike those beyond the row: also where it is known beforehand which they are."""
    a, b, c = arrays(width, F32)
    j, k = np.arange(width)[None], np.arange(STEPS)[:, None]
    counts = (j + k >= above) & (j >= first)
    expected = c + np.where(counts, a[:, :, None] + b, 0).sum(axis=1)
    run(tile(width, F32, BinaryOp.ADD, first, above), a, b, c)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("width", [8, 16, 31, 32])
@pytest.mark.parametrize("end", [3, 5, 7, 15, 21])
def test_lanes_beyond_a_loop_that_are_in_the_row_keep_what_they_have(width: int, end: int) -> None:
    """As the last ones of a reduction in lanes, of which there are fewer than lanes."""
    end = min(end, width)
    a, b, c = arrays(width, F32)
    expected = c.copy()
    expected[:, :end] += (a[:, :, None] + b[:, :end]).sum(axis=1)
    run(tile(width, F32, BinaryOp.ADD, lanes=end), a, b, c)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_lanes_beyond_a_row_divide_by_nothing(width: int) -> None:
    """What is read for them is zero, by which processors refuse to divide."""
    a, b, c = arrays(width, "int32")
    expected = c + (a[:, :, None] // b[None]).sum(axis=1)
    run(tile(width, "int32", BinaryOp.FLOORDIV), a, b, c)
    np.testing.assert_array_equal(c, expected)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("cpu", "lanes"), [("znver4", 16), ("haswell", 8)])
def test_a_row_is_as_few_vectors_as_hold_it(width: int, cpu: str, lanes: int) -> None:
    text = emit_llvm(tile(width, F32, BinaryOp.MUL), Machine.of("x86_64-unknown-linux-gnu", cpu))
    sums = [line for line in text.splitlines() if " fadd " in line]
    assert len(sums) == ROWS * -(-width // lanes)
    assert text.count("call void @llvm.masked.store") == ROWS * ((width % lanes).bit_count() > 1)


@pytest.mark.parametrize("width", [15, 31, 45])
@pytest.mark.parametrize(("cpu", "masked"), [("znver4", True), ("haswell", False)])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "bfloat16", "bool"])
def test_masks_are_of_elements_that_instructions_load_under_masks(
    dtype: str, cpu: str, masked: bool, width: int
) -> None:
    """In memory and in registers; whatever a value has while it is computed with."""
    x, y, c = Buffer("X", dtype, (width,)), Buffer("Y", dtype, (width,)), Var("c")
    value = cast(Load(x, (c,), dtype) != cast(const(0), dtype), dtype)
    nest = LoopNest("kernel", (x, y), (), For(c, width, V, Store(y, (c,), value)), (1,))
    machine = Machine.of("x86_64-unknown-linux-gnu", cpu)
    assert ("masked" in emit_llvm(nest, machine)) == masked
    if dtype != "bool":
        assert ("masked" in emit_llvm(tile(width, dtype, BinaryOp.MUL), machine)) == masked
    given = (np.arange(width) % 3).astype(to_numpy(dtype))
    found = np.zeros(width, to_numpy(dtype))
    run(nest, given, found)
    np.testing.assert_array_equal(found, (given != 0).astype(to_numpy(dtype)))


# -- where all lanes of a piece count, as the others could not be left out -----------------------------------


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("updates", [False, True])
def test_what_is_updated_in_memory_is_loaded_as_it_was_stored(width: int, updates: bool) -> None:
    """A load beside a masked store would wait for it, as its nominal width covers some of that."""
    x, y, again, c = Buffer("X", F32, (width,)), Buffer("Y", F32, (width,)), Var("again"), Var("c")
    value: Expr = Load(x, (c,), F32)
    if updates:
        value = Load(y, (c,), F32) + value
    nest = LoopNest("sums", (x, y), (), For(again, 3, S, For(c, width, V, Store(y, (c,), value))), (1,))
    source, found = arrays(width, F32)[1][0].copy(), np.zeros(width, np.float32)
    run(nest, source, found)
    np.testing.assert_array_equal(found, (3 if updates else 1) * source)
    text = emit_llvm(nest, Machine.for_target(AVX512))
    assert ("masked" in text) == (not updates and (width % 16).bit_count() > 1)


def copied(acc: Buffer, x: Buffer, y: Buffer, read: Place, written: Place, kind: LoopKind = S) -> LoopNest:
    """Y[written(p, c)] = X[read(p, c)] by way of registers, in vectors along `c`."""
    pixels, columns = acc.constant_shape
    p, c, again = Var("p"), Var("c"), Var("again")

    def loops(inner: Stmt) -> Stmt:
        return fresh_copy(For(p, pixels, U, For(c, columns, V, inner)))

    fill = loops(Store(acc, (p, c), Load(x, read(p, c), x.dtype)))
    empty = loops(Store(y, written(p, c), Load(acc, (p, c), x.dtype)))
    return LoopNest("copied", (x, y), (), Alloc(acc, seq(fill, For(again, 2, kind, empty))), (1,))


def test_registers_that_threads_read_lie_as_they_were_filled() -> None:
    acc, x, y = Buffer("acc", F32, (2, 15), "register"), Buffer("X", F32, (2, 15)), Buffer("Y", F32, (2, 15))
    found, (source, _, _) = np.zeros((2, 15), np.float32), arrays(15, F32)
    source = np.resize(source, (2, 15))
    run(copied(acc, x, y, lambda p, c: (p, c), lambda p, c: (p, c), LoopKind.PARALLEL), source, found)
    np.testing.assert_array_equal(found, source)


@pytest.mark.parametrize("step", [2, 3])
def test_lanes_apart_are_shuffled_and_not_gathered(step: int) -> None:
    acc, x = Buffer("acc", F32, (3, 14), "register"), Buffer("X", F32, (3, 14 * step))
    y = Buffer("Y", F32, (3, 14))
    source, found = np.arange(42 * step, dtype=np.float32).reshape(3, -1), np.zeros((3, 14), np.float32)
    text = run(copied(acc, x, y, lambda p, c: (p, c * step), lambda p, c: (p, c)), source, found)
    np.testing.assert_array_equal(found, source[:, ::step])
    assert "masked.gather" not in text


def test_channels_of_pixels_are_stored_in_whole_vectors() -> None:
    acc, x, y = Buffer("acc", F32, (3, 14), "register"), Buffer("X", F32, (3, 14)), Buffer("Y", F32, (14, 3))
    source, found = np.arange(42, dtype=np.float32).reshape(3, 14), np.zeros((14, 3), np.float32)
    text = run(copied(acc, x, y, lambda p, c: (p, c), lambda p, c: (c, p)), source, found)
    np.testing.assert_array_equal(found, source.T)
    assert "masked.scatter" not in text


def test_columns_of_registers_become_registers() -> None:
    acc, x, y = Buffer("acc", F32, (15, 1), "register"), Buffer("X", F32, (15, 1)), Buffer("Y", F32, (15, 1))
    p, c = Var("p"), Var("c")
    loops = [
        For(p, 15, V, For(c, 1, U, store))
        for store in (Store(acc, (p, c), Load(x, (p, c), F32)), Store(y, (p, c), Load(acc, (p, c), F32)))
    ]
    nest = LoopNest("columns", (x, y), (), Alloc(acc, seq(*map(fresh_copy, loops))), (1,))
    assert "masked" not in emit_llvm(nest, Machine.for_target(AVX512))


@pytest.mark.parametrize(("columns", "bits"), [(24, (512, 256)), (28, (512, 256, 128))])
def test_leftover_lanes_of_products_of_bytes_have_instructions(columns: int, bits: tuple[int, ...]) -> None:
    """Of which there are versions for shorter vectors, and none that leaves lanes out."""
    s = tensorized(product(1, columns, 64, "uint8", "int8", "int32"), "x86.vpdpbusd.512", rows=1, columns=1)
    machine = Machine.for_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    text = emit_llvm(lower(s, limits=machine.register_limits), machine)
    called = {int(size) for size in re.findall(r"= call .*vpdpbusd\.(\d+)", text)}
    assert called == set(bits)
    assert "masked.gather" not in text
