"""Tiles in shared memory that are filled some iterations ahead: right, without races, and not waited for."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda, compile_ptx
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.errors import RunError, ScheduleError
from ansor.ir.nest import Barrier, LoopNest
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.kernel_usage import kernel_usages
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.task.gpu_limits import count_kernels
from tests import emulated_cuda
from tests.cuda_on_host import run_cuda_on_host
from tests.gpu_schedules import (
    ahead,
    check_schedule,
    count,
    kernels,
    load_together,
    nested_product,
    product_arrays,
    small_product,
    text_of,
    tiled_matmul,
    without_barrier,
)
from tests.opencl_helper import run_opencl
from tests.program_laws import Case, check_printed_code, check_replay

# -- programs ----------------------------------------------------------------------------------------------


def test_the_next_tile_is_filled_while_this_one_is_used() -> None:
    once, twice = (
        check_schedule(small_product(16, 16, 16, 4, 4)),
        check_schedule(ahead(small_product(16, 16, 16, 4, 4))),
    )
    text = text_of(twice)
    assert "allocate A.shared[2, 8, 4] float32 shared" in text
    assert "allocate A.shared[8, 4] float32 shared" in text_of(once)
    assert "A.shared[0, " in text
    assert "A.shared[(k.0 + 1)%2, " in text
    assert "A.shared[k.0%2, " in text
    assert text.index("if k.0 < 3") < text.index("A.shared[(k.0 + 1)%2, ")
    loop = text[text.index("for k.0 in 0..4:") :]
    assert loop.count("barrier") == 1
    assert (count(once.body, Barrier), count(twice.body, Barrier)) == (2, 1)


@pytest.mark.parametrize(
    "sizes", [(17, 13, 19, 4, 1), (16, 16, 20, 4, 2), (9, 30, 7, 2, 2), (33, 8, 12, 3, 3), (8, 8, 8, 4, 4)]
)
def test_any_size(sizes: tuple[int, ...]) -> None:
    """Odd and even numbers of iterations, whether or not tiles divide."""
    text = text_of(check_schedule(ahead(small_product(*sizes))))
    assert "A.shared[(k.0 + 1)%2, " in text or "A.shared[k.0, " in text


@pytest.mark.parametrize("tile", [(2, 4, 2), (20, 2, 1)])
def test_virtual_threads(tile: tuple[int, int, int]) -> None:
    """Those that are unrolled, and those that are too many."""
    s = tiled_matmul((41, 21, 24), tile, (1, 2, 3), 8, vector=4, unroll=16)
    assert "A.shared[k.0%2, " in text_of(check_schedule(ahead(s)))


def test_a_single_iteration_has_no_next_one() -> None:
    text = text_of(check_schedule(ahead(small_product(16, 16, 4, 4, 1))))
    assert "allocate A.shared[8, 4] float32 shared" in text


@pytest.mark.parametrize("name", ["A.shared", "B.shared"])
def test_one_of_two_tiles(name: str) -> None:
    """The other one is waited for; whichever comes first, the program is right."""
    text = text_of(check_schedule(ahead(small_product(16, 16, 20, 4, 4), [name])))
    other = {"A.shared": "B.shared", "B.shared": "A.shared"}[name]
    assert f"allocate {other}[2, " not in text


@pytest.mark.parametrize("k_extent", [8, 12])
def test_loops_with_nothing_between_are_one(k_extent: int) -> None:
    """The first tile of the inner loop is filled in the last iteration of the one before."""
    nest = check_schedule(ahead(nested_product(k_extent, 4)))
    lines = [line.strip() for line in text_of(nest).splitlines()]
    assert (
        lines.index("for p in 0..3:")
        < lines.index(f"for k.0 in 0..{k_extent // 4}:")
        < lines.index("barrier")
    )
    assert count(nest.body, Barrier) == 1


@pytest.mark.parametrize(("k_extent", "waits"), [(8, False), (12, True)])
def test_loops_around_the_loops_begin_again(k_extent: int, waits: bool) -> None:
    """Of an odd number of iterations the last one uses what the first one fills."""
    nest = check_schedule(ahead(nested_product(k_extent, 4, rows=2)))
    lines = [line.strip() for line in text_of(nest).splitlines()]
    (around,) = (at for at, line in enumerate(lines) if line.endswith("i_c in 0..2:"))
    assert around < lines.index("for p in 0..3:")
    assert ("barrier" in lines[around : lines.index("for p in 0..3:")]) == waits


def test_every_barrier_is_needed() -> None:
    """Before the first tile, as that of the loop around may still be used, and before each one is used."""
    s = ahead(nested_product(12, 4, rows=2))
    nest = check_schedule(s)
    assert count(nest.body, Barrier) == 2
    for number in range(2):
        planted = LoopNest(
            nest.name, nest.params, nest.sizes, without_barrier(nest.body, number), nest.outputs
        )
        with pytest.raises(RunError, match="with no barrier between"):
            Case.of(s.state).check_interpreted(planted, check_races=True)


def test_a_tile_of_what_the_kernel_computes_is_not_early() -> None:
    """What is computed from an input may be; what is copied from shared memory that all fill may not."""
    a = te.placeholder((32, 16), name="A")
    d = te.compute((32, 16), lambda i, k: a[i, k] * 2.0, name="D")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((32,), lambda i: te.sum(d[i, k], axis=k), name="C")
    for again in (False, True):
        s = te.create_schedule(c)
        k0, _ = s[c].split(k, factor=4)
        block, thread = s[c].split(c.op.axis[0], factor=8)
        s[c].reorder(block, thread, k0)
        s[c].bind(block, te.thread_axis("blockIdx.x"))
        s[c].bind(thread, te.thread_axis("threadIdx.x"))
        tiles = [d]
        s[d].set_scope("shared")
        if again:
            tiles.append(s.cache_read(d, "shared", [c]))
        for tile in reversed(tiles):
            s[tile].compute_at(s[c], k0)
            load_together(s, tile, 8)
        text = text_of(check_schedule(ahead(s, ["D.shared" if again else "D"])))
        assert (".shared[2, " in text or "D[2, " in text) != again


def test_memory_is_counted_as_often_as_it_is_there() -> None:
    for buffers, sizes in itertools.product(
        (2, 3, 4), ((16, 16, 16, 4, 4), (16, 16, 8, 4, 4), (16, 16, 4, 4, 4))
    ):
        s = ahead(small_product(*sizes), buffers=buffers)
        (usage,), (kernel,) = kernel_usages(infer_bounds(s.state)), count_kernels(kernels(s.state))
        assert usage.shared_bytes == kernel.shared_bytes
        assert usage.lead == min(buffers, sizes[2] // sizes[3]) - 1


# -- the step ----------------------------------------------------------------------------------------------


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s = small_product(16, 16, 16, 4, 4)
    (shared,) = (stage for stage in s.state.stages if stage.name == "A.shared")
    s[shared.op].double_buffer()
    assert s.state.steps[-1].to_json() == ["DB", s.state.stage_id("A.shared"), 2]
    assert "A.shared double_buffer\n" in str(s)
    assert ".double_buffer()" in schedule_code(s.state)
    check_replay(s.state)
    check_printed_code(s.state)
    assert State.replay(s.state.dag, [step.to_json() for step in s.state.steps]).stages[1].lead == 1


def test_only_shared_memory_is_double_buffered() -> None:
    s = small_product(16, 16, 16, 4, 4)
    with pytest.raises(ScheduleError, match=r"double_buffer of stage 'C.local': it is kept in local memory"):
        ahead(s, ["C.local"])
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="Y")
    s = te.create_schedule(te.compute((4,), lambda i: y[i] * 2.0, name="Z"))
    s[y].set_scope("shared")
    s[y].double_buffer()
    with pytest.raises(ScheduleError, match="it has double_buffer; apply cache_write first"):
        s.cache_write(y, "local")


# -- texts -------------------------------------------------------------------------------------------------


def double_buffered() -> LoopNest:
    return kernels(ahead(small_product(32, 32, 24, 8, 4)).state)


def test_copies_are_on_their_way_until_the_next_barrier() -> None:
    lines = [line.strip() for line in emit_c(split_kernels(double_buffered()), CUDA).splitlines()]
    assert sum(line.startswith("ansor_copy_16(&") for line in lines) == 4
    meetings = [at for at, line in enumerate(lines) if line == "__syncthreads();"]
    assert len(meetings) == 1
    assert all(lines[at - 1] == "ansor_wait_copies();" for at in meetings)


@pytest.mark.parametrize(("vector", "bytes_"), [(1, 4), (2, 8), (4, 16)])
def test_as_many_bytes_as_threads_copy_at_once(vector: int, bytes_: int) -> None:
    text = emit_c(split_kernels(kernels(ahead(small_product(32, 32, 24, 8, vector)).state)), CUDA)
    assert set(re.findall(r"ansor_copy_(\d+)\(&", text)) == {str(bytes_)}


def test_rows_that_are_no_vectors_are_copied_by_element() -> None:
    text = emit_c(split_kernels(kernels(padded().state)), CUDA)
    assert set(re.findall(r"ansor_copy_(\d+)\(&", text)) == {"4"}


def padded() -> Any:
    """Rows of the tile of A begin at odd numbers of elements."""
    x = te.placeholder((32, 16), name="A")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((32,), lambda i: te.sum(x[i, k], axis=k), name="C")
    s = te.create_schedule(c)
    k0, _ = s[c].split(k, factor=4)
    block, thread = s[c].split(c.op.axis[0], factor=8)
    s[c].reorder(block, thread, k0)
    s[c].bind(block, te.thread_axis("blockIdx.x"))
    s[c].bind(thread, te.thread_axis("threadIdx.x"))
    tile = s.cache_read(x, "shared", [c])
    s[tile].compute_at(s[c], k0)
    s[tile].storage_align(s[tile].op.axis[0], 2, 1)
    load_together(s, tile, 8, 4)
    s[tile].double_buffer()
    check_schedule(s)
    return s


def test_halves_are_copied_where_instructions_are_wide_enough() -> None:
    """Two bytes are less than any instruction copies; vectors of them are not."""
    x = te.placeholder((8, 64), "float16", name="A")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((8,), lambda i: te.max(x[i, k], axis=k), name="C")
    for vector, found in ((1, set()), (4, {"8"})):
        s = te.create_schedule(c)
        k0, _ = s[c].split(k, factor=16)
        s[c].bind(c.op.axis[0], te.thread_axis("threadIdx.x"))
        tile = s.cache_read(x, "shared", [c])
        s[tile].compute_at(s[c], k0)
        load_together(s, tile, 8, vector)
        s[tile].double_buffer()
        text = emit_c(split_kernels(check_schedule(s)), CUDA)
        assert set(re.findall(r"ansor_copy_(\d+)\(&", text)) == found


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_texts_compile_without_warnings(compiler: CudaCompiler, arch: str) -> None:
    """With instructions that copy without waiting from 8.0 on."""
    text = emit_c(split_kernels(double_buffered()), CUDA)
    assert compile_cuda(text, arch, compiler).warnings == ""
    code = compile_ptx(text, arch, compiler)
    assert ("cp.async.cg.shared.global" in code) == ("cp.async.wait_all" in code) == (arch != "sm_75")


def test_texts_run() -> None:
    """By OpenCL, which copies as ever, and on the emulated device of CUDA."""
    a, b, c = product_arrays(32, 32, 24)
    text = run_opencl(double_buffered(), a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert "ansor_copy" not in text
    for sizes in ((32, 32, 24, 8, 4), (33, 18, 20, 4, 1)):
        a, b, c = product_arrays(*sizes[:3])
        run_cuda_on_host(kernels(ahead(small_product(*sizes)).state), a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_copies_have_to_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device makes them late enough to see that."""
    monkeypatch.setitem(emulated_cuda._COPIES, r"wait_copies\(\)", "")
    monkeypatch.setattr(emulated_cuda, "_compiled", emulated_cuda._compiled.__wrapped__)
    a, b, c = product_arrays(32, 32, 24)
    run_cuda_on_host(double_buffered(), a, b, c)
    assert not np.allclose(c, a @ b)
