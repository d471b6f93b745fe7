"""Tiles in shared memory whose rows are stored in different orders: right, in more banks, and as vectors."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.errors import ScheduleError
from ansor.ir.bounds import Bounds
from ansor.ir.nest import LoopNest
from ansor.ir.passes.swizzle import swizzle
from ansor.ir.simplify import interval, simplify
from ansor.ir.swizzles import PIECE, can_swizzle, swizzled_place
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.te.expr import Binary, BinaryOp, Const, Var
from tests.cuda_on_host import Run, each_language, run_cuda_on_host
from tests.gpu_schedules import (
    ahead,
    check_schedule,
    kernels,
    load_together,
    product_arrays,
    small_product,
    swizzled,
    text_of,
)
from tests.program_laws import Case, check_printed_code, check_replay
from tests.tensor_core_schedules import half_product, tensor_cores
from tests.test_gpu_tensor_cores import calls

product = partial(small_product, inner=4)


# -- places ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("pieces", [2, 4, 8, 16])
def test_the_same_piece_of_eight_rows_lies_in_all_banks(pieces: int, size: int) -> None:
    """And each element has its own place in its own row, beside those that it was beside."""
    width = pieces * PIECE // size
    lanes, rows = PIECE // size, np.arange(64)[:, None]
    places = swizzled_place(rows * width + np.arange(width), width, size)
    assert sorted(places.ravel()) == list(range(64 * width))
    np.testing.assert_array_equal(places // width, np.broadcast_to(rows, places.shape))
    np.testing.assert_array_equal(places % lanes, np.broadcast_to(np.arange(width) % lanes, places.shape))
    banks = places[:, ::lanes] // lanes % 8
    for first in range(0, 64, 8):
        for piece in range(pieces):
            assert len(set(banks[first : first + 8, piece])) == 8


@pytest.mark.parametrize(("width", "size"), [(4, 4), (6, 4), (12, 4), (2, 2), (7, 1), (1, 8)])
def test_rows_that_are_no_power_of_two_of_pieces_stay(width: int, size: int) -> None:
    assert not can_swizzle(width, size)
    np.testing.assert_array_equal(swizzled_place(np.arange(90), width, size), np.arange(90))


def test_columns_are_swizzled_row_by_row() -> None:
    widths = np.array([16, 12, 64])
    places = swizzled_place(np.arange(256)[:, None], widths, 4)
    for column, width in enumerate(widths.tolist()):
        np.testing.assert_array_equal(places[:, column], swizzled_place(np.arange(256), width, 4))


def test_exclusive_or_of_indices() -> None:
    """Zeros are neutral, constants are folded, and no bit is above those of the operands."""
    i, j = Var("i"), Var("j")
    bounds = Bounds({i: (0, 5), j: (0, 3)})

    def xor(a: Any, b: Any) -> Any:
        return simplify(Binary(BinaryOp.XOR, a, b, "int32"), bounds)

    assert xor(i, Const(0, "int32")) is i
    assert xor(Const(6, "int32"), Const(3, "int32")).value == 5
    assert interval(xor(i, j), bounds) == (0, 7)
    assert interval(xor(i - 1, j), bounds)[0] < 0


# -- programs ----------------------------------------------------------------------------------------------


def test_accesses_are_moved() -> None:
    once = check_schedule(product(32, 32, 32, 16, 4))
    nest = check_schedule(swizzled(product(32, 32, 32, 16, 4)))
    text = text_of(nest)
    assert "allocate A.shared[16, 16] float32 shared" in text
    assert len(re.findall(r"A\.shared\[[^\]]*xor\(", text)) == 2
    assert len(re.findall(r"B\.shared\[[^\]]*xor\(", text)) == 2
    assert text.count("barrier") == text_of(once).count("barrier")
    assert swizzle(nest.body, Bounds({})) is nest.body


@pytest.mark.parametrize(
    "sizes",
    [(33, 29, 40, 8, 4), (32, 32, 64, 32, 4), (17, 40, 20, 16, 2), (20, 20, 16, 8, 1), (40, 8, 30, 64, 4)],
)
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_any_size(sizes: tuple[int, ...], buffers: int) -> None:
    """Also of tiles that are there several times."""
    s = swizzled(product(*sizes))
    text = text_of(check_schedule(s if buffers == 1 else ahead(s, buffers=buffers)))
    assert "xor(" in text


def maxima(dtype: str = "float32", row: int = 32, padding: int = 0) -> Any:
    """The greatest elements of rows, which go through tiles in shared memory with rows of `row` elements."""
    x = te.placeholder((24, 64), dtype, name="A")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((24,), lambda i: te.max(x[i, k], axis=k), name="C")
    s = te.create_schedule(c)
    k0, _ = s[c].split(k, factor=row)
    block, thread = s[c].split(c.op.axis[0], factor=8)
    s[c].reorder(block, thread, k0)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    tile = s.cache_read(x, "shared", [c])
    s[tile].compute_at(s[c], k0)
    if padding:
        s[tile].storage_align(s[tile].op.axis[0], 2 * padding, padding)
    load_together(s, tile, 8, 2)
    s[tile].swizzle()
    return s


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "float64"])
def test_any_dtype(dtype: str) -> None:
    assert "xor(" in text_of(check_schedule(maxima(dtype)))


def test_rows_that_are_padded_or_of_another_length_stay() -> None:
    for s in (maxima(row=4), maxima(row=6), maxima(row=20), maxima(padding=4)):
        text = text_of(check_schedule(s))
        assert "allocate A.shared[8, " in text
        assert "xor(" not in text


# -- the step ----------------------------------------------------------------------------------------------


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s = product(16, 16, 16, 8, 4)
    (shared,) = (stage for stage in s.state.stages if stage.name == "A.shared")
    s[shared.op].swizzle()
    assert s.state.steps[-1].to_json() == ["SW", s.state.stage_id("A.shared")]
    assert "A.shared swizzle\n" in str(s)
    assert ".swizzle()" in schedule_code(s.state)
    check_replay(s.state)
    check_printed_code(s.state)
    again = State.replay(s.state.dag, [step.to_json() for step in s.state.steps])
    assert again.stages[again.stage_id("A.shared")].swizzle


def test_only_shared_memory_is_swizzled() -> None:
    with pytest.raises(ScheduleError, match=r"swizzle of stage 'C.local': it is kept in local memory"):
        swizzled(product(16, 16, 16, 4, 4), ("C.local",))
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="Y")
    s = te.create_schedule(te.compute((4,), lambda i: y[i] * 2.0, name="Z"))
    s[y].set_scope("shared")
    s[y].swizzle()
    with pytest.raises(ScheduleError, match="it has swizzle; apply cache_write first"):
        s.cache_write(y, "local")


# -- texts -------------------------------------------------------------------------------------------------


def nest_of(buffers: int = 1) -> LoopNest:
    s = swizzled(product(64, 64, 64, 16, 4))
    return kernels((s if buffers == 1 else ahead(s, buffers=buffers)).state)


def test_vectors_stay_vectors() -> None:
    """Those that are stored, and those that are copied without waiting."""
    text = emit_c(split_kernels(nest_of()), CUDA)
    assert text.count("*(float4*)&A_shared[") == text.count("*(float4*)&B_shared[") == 1
    assert set(re.findall(r"ansor_copy_(\d+)\(&", emit_c(split_kernels(nest_of(3)), CUDA))) == {"16"}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_texts_compile_without_warnings(compiler: CudaCompiler, arch: str) -> None:
    for buffers in (1, 3):
        assert compile_cuda(emit_c(split_kernels(nest_of(buffers)), CUDA), arch, compiler).warnings == ""


@each_language
@pytest.mark.parametrize("buffers", [1, 3])
def test_texts_run(run: Run, buffers: int) -> None:
    a, b, c = product_arrays(64, 64, 64)
    run(nest_of(buffers), a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


# -- tensor cores --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffers", [1, 3])
@pytest.mark.parametrize("transposed", ["", "A", "B", "AB"])
def test_warps_load_swizzled_rows_as_matrices(transposed: str, buffers: int) -> None:
    """By the same instructions as others."""
    found = []
    for changed in (False, True):
        made = half_product(64, 64, 128, transposed=transposed)
        s = tensor_cores(made, warps=(2, 1), tiles=(2, 4), steps=2)
        s = swizzled(s) if changed else s
        s = ahead(s, buffers=buffers) if buffers > 1 else s
        nest = kernels(s.state, shuffles=True)
        assert ("xor(" in str(nest)) == changed
        arrays = Case.of(s.state).arrays()
        found.append(sorted(calls(run_cuda_on_host(nest, *arrays))))
        Case.of(s.state).check(arrays)
    assert found[0] == found[1]
    assert {"mma"} < {name.rpartition("_")[0] for name in found[0]} <= {"mma", "rows", "columns"}


def test_what_warps_do_with_swizzled_rows_means_what_it_says() -> None:
    check_schedule(swizzled(tensor_cores(half_product(64, 32, 64), tiles=(2, 2), steps=2)))
