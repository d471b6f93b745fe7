"""Tiles in shared memory of which several are on their way: right, without races, and waited for in time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from ansor.codegen.c import CUDA, OPENCL, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda, compile_ptx
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.errors import LogFormatError, RunError, ScheduleError
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Barrier, Buffer, Commit, For, If, LoopKind, LoopNest, Seq, Stmt, Store, seq
from ansor.ir.rewriting import conjuncts, map_statements
from ansor.schedule.bounds import infer_bounds
from ansor.schedule.kernel_usage import kernel_usages
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.task.gpu_limits import count_kernels
from ansor.te.expr import Load, Var, const, select
from tests import emulated_cuda
from tests.cuda_on_host import Run, each_language, run_cuda_on_host, run_together
from tests.gpu_schedules import (
    ahead,
    check_schedule,
    count,
    kernels,
    nested_product,
    product_arrays,
    small_product,
    text_of,
    tiled_matmul,
    without_barrier,
)
from tests.program_laws import Case, check_printed_code, check_replay

# -- programs ----------------------------------------------------------------------------------------------


def test_two_tiles_are_on_their_way_while_one_is_used() -> None:
    nest = check_schedule(ahead(small_product(16, 16, 24, 4, 4), buffers=3))
    lines = [line.strip() for line in text_of(nest).splitlines()]
    assert "allocate A.shared[3, 8, 4] float32 shared" in lines
    loop = lines.index("for k.0 in 0..6:")
    before = [line for line in lines[:loop] if line in ("barrier", "commit") or line.startswith("A.shared")]
    assert [line.partition(",")[0] for line in before] == [
        "A.shared[0",
        "commit",
        "A.shared[1",
        "commit",
    ]
    assert lines[loop + 1] == "barrier but 1"
    assert lines[loop + 2].startswith("if k.0 < 4")
    assert lines.count("commit") == 3
    assert count(nest.body, Barrier) == 1
    assert any(line.startswith("A.shared[(k.0 + 2)%3, ") for line in lines)
    assert any("A.shared[k.0%3, " in line for line in lines)


@pytest.mark.parametrize("buffers", [3, 4, 5])
@pytest.mark.parametrize(
    "sizes", [(17, 13, 19, 4, 1), (16, 16, 20, 4, 2), (9, 30, 7, 2, 2), (33, 8, 12, 3, 3), (8, 8, 8, 4, 4)]
)
def test_any_size(sizes: tuple[int, ...], buffers: int) -> None:
    """Whether or not tiles divide, and where the loop is shorter than the pipeline."""
    text = text_of(check_schedule(ahead(small_product(*sizes), buffers=buffers)))
    there = min(buffers, -(-sizes[2] // sizes[3]))
    assert f"allocate A.shared[{there}, 8, {sizes[3]}]" in text
    assert text.count("commit") == (there if there > 2 else 0)


@pytest.mark.parametrize("tile", [(2, 4, 2), (20, 2, 1)])
def test_virtual_threads(tile: tuple[int, int, int]) -> None:
    s = tiled_matmul((41, 21, 24), tile, (1, 2, 3), 4, vector=4, unroll=16)
    assert "A.shared[k.0%3, " in text_of(check_schedule(ahead(s, buffers=3)))


def test_a_single_iteration_has_no_next_one() -> None:
    text = text_of(check_schedule(ahead(small_product(16, 16, 4, 4, 1), buffers=4)))
    assert "allocate A.shared[8, 4] float32 shared" in text
    assert "commit" not in text


def test_tiles_of_one_loop_have_one_lead() -> None:
    """The least that is asked for; a tile that is not to be filled ahead is waited for."""
    s = ahead(ahead(small_product(16, 16, 24, 4, 4), ["A.shared"], buffers=4), ["B.shared"], buffers=3)
    text = text_of(check_schedule(s))
    assert "allocate A.shared[3, " in text
    assert "allocate B.shared[3, " in text
    for name in ("A.shared", "B.shared"):
        check_schedule(ahead(small_product(16, 16, 24, 4, 4), [name], buffers=3))


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize(("inner", "buffers"), [(10, 3), (10, 4), (4, 4), (2, 3), (3, 5)])
def test_loops_with_nothing_between_are_one(inner: int, buffers: int, unroll: bool) -> None:
    """Whose tiles may be more than the inner loop has iterations."""
    nest = check_schedule(ahead(nested_product(inner, 2, unroll=unroll), buffers=buffers))
    text = text_of(nest)
    assert f"barrier but {buffers - 2}" in text
    assert count(nest.body, Barrier) == 1
    assert f"allocate A.shared[{buffers}, " in text


@pytest.mark.parametrize("unroll", [False, True])
@pytest.mark.parametrize("buffers", [3, 4])
def test_loops_around_the_loops_begin_again(buffers: int, unroll: bool) -> None:
    """After groups of no copies, and in memory that the last iterations may still use."""
    nest = check_schedule(ahead(nested_product(10, 2, rows=3, unroll=unroll), buffers=buffers))
    lines = [line.strip() for line in text_of(nest).splitlines()]
    (around,) = (at for at, line in enumerate(lines) if line.endswith("i_c in 0..3:"))
    assert around < lines.index("for p in 0..3:") < lines.index(f"barrier but {buffers - 2}")
    assert ("barrier" in lines) == (15 % buffers != 0)


def test_loops_with_something_between_are_not_one() -> None:
    """The inner loop begins again, and memory is counted so."""
    s = nested_product(12, 2)
    (local,) = (stage.op for stage in s.state.stages if stage.name == "C.local")
    (tile,) = (stage.op for stage in s.state.stages if stage.name == "A.shared")
    s[tile].compute_at(s[local], s[local].op.reduce_axis[0])
    s = ahead(s, ["B.shared"], buffers=4)
    nest = check_schedule(s)
    (usage,), (kernel,) = kernel_usages(infer_bounds(s.state)), count_kernels(kernels(s.state))
    assert usage.shared_bytes == kernel.shared_bytes
    text = text_of(nest)
    assert text.index("for p in 0..3:") < text.index("B.shared[0, ") < text.index("for k.0 in 0..6:")


def test_memory_of_nested_loops_is_counted_as_often_as_it_is_there() -> None:
    for inner, buffers, rows in itertools.product((2, 4, 12), (2, 3, 4), (1, 2)):
        s = ahead(nested_product(inner, 2, rows), buffers=buffers)
        (usage,), (kernel,) = kernel_usages(infer_bounds(s.state)), count_kernels(kernels(s.state))
        assert usage.shared_bytes == kernel.shared_bytes
        assert usage.lead == min(buffers, 3 * inner // 2) - 1


# -- planted mistakes --------------------------------------------------------------------------------------


def changed(nest: LoopNest, change: Callable[[Stmt], Stmt]) -> LoopNest:
    """The program with all its statements changed, from the inside."""

    def visit(stmt: Stmt) -> Stmt:
        return change(map_statements(stmt, visit))

    return replace(nest, body=visit(nest.body))


def less_waiting(stmt: Stmt) -> Stmt:
    return Barrier(stmt.pending + 1) if isinstance(stmt, Barrier) and stmt.pending else stmt


def fewer_groups(stmt: Stmt) -> Stmt:
    """One group for all that is copied before the loop."""
    if not isinstance(stmt, Seq):
        return stmt
    loop = next((at for at, one in enumerate(stmt.stmts) if isinstance(one, For) and count(one, Barrier)), 0)
    commits = [at for at, one in enumerate(stmt.stmts[:loop]) if isinstance(one, Commit)]
    return seq(*(one for at, one in enumerate(stmt.stmts) if at not in commits[:-1]))


def groups_of_iterations_that_copy(stmt: Stmt) -> Stmt:
    """No groups at last, when nothing is copied."""
    if not (isinstance(stmt, For) and stmt.var.name == "k.0" and isinstance(stmt.body, Seq)):
        return stmt
    first, copies, commit, *rest = stmt.body.stmts
    assert isinstance(commit, Commit)
    assert isinstance(copies, If)
    return replace(stmt, body=seq(first, copies, If(conjuncts(copies.cond)[0], commit), *rest))


@pytest.mark.parametrize("plant", [less_waiting, fewer_groups, groups_of_iterations_that_copy])
@pytest.mark.parametrize("buffers", [3, 4])
def test_what_is_not_waited_for_is_found(plant: Callable[[Stmt], Stmt], buffers: int) -> None:
    """The result is right all the same, as copies are done at once; the check of races finds it."""
    s = ahead(small_product(16, 16, 24, 4, 4), buffers=buffers)
    nest, case = check_schedule(s), Case.of(s.state)
    hasty = changed(nest, plant)
    assert str(hasty) != str(nest)
    case.check_interpreted(hasty)
    with pytest.raises(RunError, match="is touched while a copy into it is on its way"):
        case.check_interpreted(hasty, check_races=True)


def test_every_barrier_is_needed() -> None:
    s = ahead(nested_product(10, 2, rows=3), buffers=4)
    nest = check_schedule(s)
    for number in range(2):
        hasty = replace(nest, body=without_barrier(nest.body, number))
        with pytest.raises(RunError, match="with no barrier"):
            Case.of(s.state).check_interpreted(hasty, check_races=True)


def test_a_thread_waits_for_its_own_copies_too() -> None:
    """The element that it copied itself is as late as others."""
    b, t = Var("b"), Var("t")
    x, y = Buffer("X", "int32", (2, 4)), Buffer("Y", "int32", (2, 4))
    for lead in (0, 1):
        s = Buffer("S", "int32", (4,), "shared", lead=lead)
        copy, back = Store(s, (t,), Load(x, (b, t), "int32")), Store(y, (b, t), Load(s, (t,), "int32"))
        for between, late in (((), lead), ((Barrier(),), 0), ((Commit(), Barrier(1)), lead)):
            body = For(t, 4, LoopKind.THREAD_X, Alloc(s, seq(copy, *between, back)))
            nest = LoopNest("f", (x, y), (), For(b, 2, LoopKind.BLOCK_X, body), (1,))
            values = [np.arange(8, dtype=np.int32).reshape(2, 4), np.zeros((2, 4), np.int32)]
            if late:
                with pytest.raises(RunError, match="an element of 'S' is touched while a copy into it is on"):
                    run_nest(nest, values, check_races=True)
            else:
                run_nest(nest, values, check_races=True)
                np.testing.assert_array_equal(*values)


def test_what_is_computed_is_there_at_the_barrier() -> None:
    """Only copies of memory are late."""
    t, double = Var("t"), const(2)
    x, y = Buffer("X", "int32", (4,)), Buffer("Y", "int32", (4,))
    s = Buffer("S", "int32", (4,), "shared", lead=1)
    fill, back = (
        Store(s, (t,), Load(x, (t,), "int32") * double),
        Store(y, (t,), Load(s, (const(3) - t,), "int32")),
    )
    body = For(t, 4, LoopKind.THREAD_X, Alloc(s, seq(fill, Commit(), Barrier(1), back)))
    values = [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)]
    run_nest(LoopNest("f", (x, y), (), body, (1,)), values, check_races=True)
    np.testing.assert_array_equal(values[1], 2 * values[0][::-1])


def filled(*waits: Stmt) -> LoopNest:
    """Four threads copy twelve elements and four zeros, and store them the other way round."""
    t, v, w = Var("t"), Var("v"), Var("w")
    x, y = Buffer("X", "float32", (12,)), Buffer("Y", "float32", (16,))
    s = Buffer("S", "float32", (16,), "shared", lead=1)
    copied = select(t < 3, Load(x, (t * 4 + v,), "float32"), const(0.0), lazy=True)
    fill = For(v, 4, LoopKind.VECTORIZED, Store(s, (t * 4 + v,), copied))
    back = For(w, 4, LoopKind.SERIAL, Store(y, (t * 4 + w,), Load(s, (const(15) - t * 4 - w,), "float32")))
    body = Alloc(s, seq(fill, *waits, back))
    return LoopNest("f", (x, y), (), For(t, 4, LoopKind.THREAD_X, body), (1,))


@each_language
def test_copies_fill_with_zeros_what_is_beyond(run: Run) -> None:
    x, y = np.arange(1, 13, dtype=np.float32), np.ones(16, np.float32)
    expected = [*[0] * 4, *x[::-1]]
    run_nest(filled(Barrier()), [x, y], check_races=True)
    np.testing.assert_array_equal(y, expected)
    y[:] = 1
    text = run(filled(Barrier()), x, y)
    np.testing.assert_array_equal(y, expected)
    assert text.count("ansor_fill_16(&S[") == (run is run_cuda_on_host)


def test_zeros_have_to_be_waited_for_too() -> None:
    values = [np.ones(12, np.float32), np.ones(16, np.float32)]
    with pytest.raises(RunError, match="an element of 'S' is touched while a copy into it is on its way"):
        run_nest(filled(Commit(), Barrier(1)), values, check_races=True)


def test_where_elements_come_from_is_not_read_beyond() -> None:
    """What says where they are may end where they do."""
    t = Var("t")
    x, at, y = Buffer("X", "float32", (9,)), Buffer("At", "int32", (3,)), Buffer("Y", "float32", (4,))
    s = Buffer("S", "float32", (4,), "shared", lead=1)
    given = Load(x, (Load(at, (t,), "int32"),), "float32")
    fill = Store(s, (t,), select(t < 3, given, const(0.0), lazy=True))
    back = Store(y, (t,), Load(s, (const(3) - t,), "float32"))
    body = For(t, 4, LoopKind.THREAD_X, Alloc(s, seq(fill, Barrier(), back)))
    nest = LoopNest("f", (x, at, y), (), body, (2,))
    values = [np.arange(9, dtype=np.float32), np.array([8, 2, 4], np.int32), np.ones(4, np.float32)]
    text = run_cuda_on_host(nest, *values)
    np.testing.assert_array_equal(values[-1], [0, 4, 2, 8])
    assert not re.search("ansor_(copy|fill)", text)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_filling_compiles_without_warnings(compiler: CudaCompiler, arch: str) -> None:
    text = emit_c(split_kernels(filled(Barrier())), CUDA)
    assert compile_cuda(text, arch, compiler).warnings == ""
    assert ("cp.async.cg.shared.global" in compile_ptx(text, arch, compiler)) == (arch != "sm_75")


# -- the step ----------------------------------------------------------------------------------------------


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s = small_product(16, 16, 16, 4, 4)
    (shared,) = (stage for stage in s.state.stages if stage.name == "A.shared")
    s[shared.op].multi_buffer(3)
    assert s.state.steps[-1].to_json() == ["DB", s.state.stage_id("A.shared"), 3]
    assert "A.shared multi_buffer: 3\n" in str(s)
    assert ".multi_buffer(3)" in schedule_code(s.state)
    check_replay(s.state)
    check_printed_code(s.state)
    assert str(ahead(small_product(16, 16, 16, 4, 4), ["A.shared"], buffers=4)) != str(s)


def test_first_records_of_the_step_mean_two_buffers() -> None:
    s = ahead(small_product(16, 16, 16, 4, 4), ["A.shared"])
    *others, last = (step.to_json() for step in s.state.steps)
    again = State.replay(s.state.dag, [*others, last[:-1]])
    assert again == s.state
    assert again.steps[-1] == s.state.steps[-1]
    for wrong in ([*last, 1], ["DB"], [*last[:-1], "2"], ["DB", 1.0]):
        with pytest.raises(LogFormatError, match="step DB: expected a stage and a number of buffers"):
            State.replay(s.state.dag, [*others, wrong])


def test_fewer_than_two_buffers_are_refused() -> None:
    with pytest.raises(ScheduleError, match=r"it takes 2 buffers or more, found 1"):
        ahead(small_product(16, 16, 16, 4, 4), ["A.shared"], buffers=1)
    with pytest.raises(ScheduleError, match=r"multi_buffer of stage 'C.local': it is kept in local memory"):
        ahead(small_product(16, 16, 16, 4, 4), ["C.local"], buffers=3)


# -- texts -------------------------------------------------------------------------------------------------


def pipelined(buffers: int) -> LoopNest:
    return kernels(ahead(small_product(32, 32, 40, 8, 4), buffers=buffers).state)


@pytest.mark.parametrize("buffers", [3, 4])
def test_barriers_wait_for_all_groups_but_the_last(buffers: int) -> None:
    lines = [line.strip() for line in emit_c(split_kernels(pipelined(buffers)), CUDA).splitlines()]
    meetings = [at for at, line in enumerate(lines) if line == "__syncthreads();"]
    assert [lines[at - 1] for at in meetings] == [f"ansor_wait_but_{buffers - 2}();"]
    assert lines.count("ansor_commit_copies();") == buffers
    text = emit_c(split_kernels(pipelined(buffers)), OPENCL)
    assert not re.search("ansor_(copy|fill)", text)
    assert text.count("barrier(CLK_LOCAL_MEM_FENCE);") == 1


@pytest.mark.parametrize("buffers", [3, 4])
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_texts_compile_without_warnings(compiler: CudaCompiler, arch: str, buffers: int) -> None:
    text = emit_c(split_kernels(pipelined(buffers)), CUDA)
    assert compile_cuda(text, arch, compiler).warnings == ""
    code = compile_ptx(text, arch, compiler)
    for instruction in (
        "cp.async.cg.shared.global",
        "cp.async.commit_group",
        f"cp.async.wait_group {buffers - 2}",
    ):
        assert (instruction in code) == (arch != "sm_75")


@each_language
@pytest.mark.parametrize("buffers", [3, 4])
def test_texts_run(run: Run, buffers: int) -> None:
    programs = [
        (kernels(ahead(small_product(*sizes), buffers=buffers).state), product_arrays(*sizes[:3]), ())
        for sizes in ((32, 32, 40, 8, 4), (33, 18, 20, 4, 1), (16, 24, 8, 4, 2))
    ]
    run_together(run, programs)
    for _, (a, b, c), _ in programs:
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


@each_language
@pytest.mark.parametrize("rows", [1, 3])
def test_texts_of_nested_loops_run(run: Run, rows: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((6, 3, 10), (3, 10, 8)))
    c = np.zeros((6, 8), np.float32)
    run(kernels(ahead(nested_product(10, 2, rows), buffers=4).state), a, b, c)
    np.testing.assert_allclose(c, np.einsum("ipk,pkj->ij", a, b), rtol=1e-4, atol=1e-4)


def test_groups_have_to_be_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The emulated device makes copies late enough to see that."""
    head = r"wait_but_(\d+)\(\)"
    monkeypatch.setitem(emulated_cuda._COPIES, head, r"end_groups(\2 + 1);")
    monkeypatch.setattr(emulated_cuda, "_compiled", emulated_cuda._compiled.__wrapped__)
    a, b, c = product_arrays(32, 32, 40)
    run_cuda_on_host(pipelined(3), a, b, c)
    assert not np.allclose(c, a @ b)
