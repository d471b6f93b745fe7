"""Reductions through the warps of CUDA: the same results as through memory, in texts that compile."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.codegen.c import CUDA, emit_c, split_kernels
from ansor.codegen.c.compile import compile_cuda
from ansor.codegen.c.cuda_compilers import CudaCompiler
from ansor.dtypes import DTYPES
from ansor.errors import BuildError, LoweringError, RunError
from ansor.ir.interp import run_nest
from ansor.ir.kernel_form import check_kernels
from ansor.ir.nest import (
    Alloc,
    Barrier,
    Buffer,
    For,
    If,
    LoopKind,
    LoopNest,
    Stmt,
    Store,
    seq,
    walk_statements,
)
from ansor.ir.shuffles import shuffle, shuffled
from ansor.te.expr import Binary, BinaryOp, Load, Var, const
from tests.cuda_on_host import run_cuda_on_host
from tests.gpu_schedules import (
    argmax,
    count,
    kernels,
    reduce_together,
    row_sums,
    softmax,
    text_of,
    without_barrier,
)
from tests.program_laws import Case
from tests.test_device_compile import together

BLOCK, THREAD = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")


def with_shuffles(s: Any) -> LoopNest:
    """The kernels of a schedule with shuffles, which are right."""
    nest = kernels(s.state, shuffles=True)
    Case.of(s.state).check_interpreted(nest, check_races=True)
    return nest


def distances(nest: LoopNest) -> list[int]:
    found = (shuffled(stmt) for stmt in walk_statements(nest.body))
    return [one[1] for one in found if one is not None]


# -- programs ----------------------------------------------------------------------------------------------


def test_threads_of_a_warp_meet_without_memory() -> None:
    assert text_of(with_shuffles(row_sums(5, 14, 4))) == dedent(
        """\
        blockIdx.x i in 0..5:
          threadIdx.x k.1 in 0..4:
            allocate S.part[] float32 local
            allocate S.other[] float32 local
            S.part[] = 0.0
            for k.0 in 0..4:
              if k.0*4 + k.1 < 14:
                S.part[] = S.part[] + X[i, k.0*4 + k.1]
            S.other[] = shuffle_xor(S.part[], 2)
            S.part[] = S.part[] + S.other[]
            S.other[] = shuffle_xor(S.part[], 1)
            S.part[] = S.part[] + S.other[]
            if k.1 == 0:
              S[i] = S.part[]"""
    )


def test_warps_meet_once() -> None:
    nest = with_shuffles(row_sums(3, 150, 128))
    text = text_of(nest)
    assert "allocate S.red[4] float32 shared" in text
    assert "if k.1%32 == 0:\n      S.red[k.1//32] = S.part[]\n    barrier\n" in text
    assert "S.part[] = S.red[k.1%4]" in text
    assert distances(nest) == [16, 8, 4, 2, 1, 2, 1]


@pytest.mark.parametrize("threads", [2, 3, 8, 16, 32, 48, 64, 100, 256, 1024])
def test_any_number_of_threads(threads: int) -> None:
    """Powers of two have shuffles and at most one barrier; others meet in memory, as ever."""
    nest = with_shuffles(row_sums(2, 1100, threads))
    if threads & (threads - 1):
        assert not distances(nest)
    else:
        assert count(nest.body, Barrier) == (threads > 32)
        assert len(distances(nest)) == threads.bit_length() - 1


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_rows_in_other_threads(place: str) -> None:
    x = te.placeholder((11, 200), name="X")
    k = te.reduce_axis((0, 200), name="k")
    S = te.compute((11,), lambda i: te.sum(x[i, k], axis=k), name="S")
    for threads in (8, 64):
        s = te.create_schedule(S)
        serial = reduce_together(s, S, threads)
        thread = s[S].leaf_iter_vars[-1]
        outer, inner = s[S].split(s[S].op.axis[0], factor=4)
        s[S].bind(outer, BLOCK)
        s[S].bind(inner, te.thread_axis("threadIdx.y"))
        s[S].reorder(
            *((outer, inner, serial, thread) if place == "outside" else (outer, serial, inner, thread))
        )
        nest = with_shuffles(s)
        assert distances(nest)
        assert ("allocate S.red[4, 2] float32 shared" in text_of(nest)) == (threads == 64)


def test_elements_inside_of_the_reduction() -> None:
    """Those of one thread are reduced one after another, in memory that is used again."""
    x = te.placeholder((6, 140), name="X")
    k = te.reduce_axis((0, 140), name="k")
    S = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="S")
    for threads, barriers in ((16, 0), (64, 2)):
        s = te.create_schedule(S)
        serial, thread = s[S].split(S.op.reduce_axis[0], factor=threads)
        outer, inner = s[S].split(S.op.axis[0], factor=4)
        s[S].reorder(outer, serial, thread, inner)
        s[S].bind(outer, BLOCK)
        s[S].bind(thread, THREAD)
        nest = with_shuffles(s)
        assert "allocate S.part[4] float32 local" in text_of(nest)
        assert count(nest.body, Barrier) == barriers


def test_virtual_threads_have_results_of_their_own() -> None:
    x = te.placeholder((8, 70), name="X")
    k = te.reduce_axis((0, 70), name="k")
    S = te.compute((8,), lambda i: te.sum(x[i, k], axis=k), name="S")
    s = te.create_schedule(S)
    reduce_together(s, S, 64)
    outer, inner = s[S].split(S.op.axis[0], factor=4)
    s[S].bind(outer, BLOCK)
    s[S].bind(inner, te.thread_axis("vthread"))
    assert "allocate S.part[4] float32 local" in text_of(with_shuffles(s))


def test_two_values_are_reduced_together() -> None:
    _, place, value = argmax(4, 90)
    for threads in (8, 64):
        s = te.create_schedule([place, value])
        reduce_together(s, place, threads)
        s[place].bind(s[place].op.axis[0], BLOCK)
        nest = with_shuffles(s)
        text = text_of(nest)
        first = text[text.index("Best.v0.other[] =") :]
        assert first.splitlines()[1].strip().startswith("Best.v1.other[] = shuffle_xor(")
        assert count(nest.body, Barrier) == (threads > 32)


def test_softmax_in_one_kernel() -> None:
    _, high, total, y = softmax(6, 130)
    s = te.create_schedule(y)
    i, j = s[y].op.axis
    _, thread = s[y].split(j, factor=64)
    s[y].bind(i, BLOCK)
    s[y].bind(thread, THREAD)
    for stage in (high, total):
        s[stage].compute_at(s[y], i)
        reduce_together(s, stage, 64)
    assert len(distances(with_shuffles(s))) == 12


@pytest.mark.parametrize("threads", [8, 16, 32])
def test_blocks_that_others_fill_meet_in_memory(threads: int) -> None:
    """Where a stage has fewer threads than its kernel, not all of them come by."""
    _, high, total, y = softmax(6, 130)
    s = te.create_schedule(y)
    i, j = s[y].op.axis
    _, thread = s[y].split(j, factor=32)
    s[y].bind(i, BLOCK)
    s[y].bind(thread, THREAD)
    for stage in (high, total):
        s[stage].compute_at(s[y], i)
        reduce_together(s, stage, threads)
    assert bool(distances(with_shuffles(s))) == (threads == 32)


def test_threads_of_another_index_meet_in_memory() -> None:
    x = te.placeholder((4, 64), name="X")
    k = te.reduce_axis((0, 64), name="k")
    S = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="S")
    s = te.create_schedule(S)
    reduce_together(s, S, 32, "threadIdx.y")
    s[S].bind(S.op.axis[0], BLOCK)
    assert not distances(with_shuffles(s))


def test_targets_have_what_their_language_has() -> None:
    s = row_sums(4, 64, 32)
    tensors = list(s.dag.tensors)
    assert distances(ansor.lower(s, tensors, target="cuda"))
    for target in ("opencl", "vulkan -max_num_threads=256"):
        assert not distances(ansor.lower(s, tensors, target=target))
    source = ansor.build(s, tensors, target="cuda -arch=sm_80").get_source("cuda")
    assert "__shfl_xor_sync(0xffffffffu, S_part[0], 16)" in source
    assert "__shared__" not in source
    with pytest.raises(BuildError, match=r"opencl has no shuffles, as in .* with target=.opencl"):
        ansor.build(ansor.lower(s, tensors, target="cuda"), target="opencl")


def test_a_program_with_shuffles_has_a_text_for_cuda_only() -> None:
    s = row_sums(4, 64, 32)
    module = ansor.build(s, list(s.dag.tensors), target="cuda -arch=sm_80")
    assert isinstance(module, ansor.DeviceModule)
    with pytest.raises(BuildError, match="opencl has no shuffles"):
        module.get_source("opencl")
    elsewhere = ansor.build(s, list(s.dag.tensors), target="opencl")
    assert isinstance(elsewhere, ansor.DeviceModule)
    assert "__syncthreads" in elsewhere.get_source("cuda")


# -- texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_all_dtypes_compile_without_warnings(compiler: CudaCompiler, arch: str) -> None:
    sums = [row_sums(4, 100, threads, dtype) for dtype in DTYPES if dtype != "bool" for threads in (16, 64)]
    nests = [kernels(s.state, shuffles=True) for s in (*sums, any_of(64))]
    text = emit_c(split_kernels(together(nests)), CUDA)
    assert text.count("__shfl_xor_sync(0xffffu, ") == 4 * len(sums) // 2
    assert compile_cuda(text, arch, compiler).warnings == ""


def test_a_text() -> None:
    program = split_kernels(kernels(row_sums(5, 14, 4).state, shuffles=True), "rows")
    assert emit_c(program, CUDA) == dedent(
        """\
        extern "C" __global__ void __launch_bounds__(4) rows_kernel0(const float* __restrict__ X, float* __restrict__ S) {
          const int i = blockIdx.x;
          const int k_1 = threadIdx.x;
          float S_part[1];
          float S_other[1];
          S_part[0] = 0.0f;
          for (int k_0 = 0; k_0 < 4; ++k_0) {
            if (k_0 * 4 + k_1 < 14) {
              S_part[0] = S_part[0] + X[i * 14 + k_0 * 4 + k_1];
            }
          }
          S_other[0] = __shfl_xor_sync(0xfu, S_part[0], 2);
          S_part[0] = S_part[0] + S_other[0];
          S_other[0] = __shfl_xor_sync(0xfu, S_part[0], 1);
          S_part[0] = S_part[0] + S_other[0];
          if (k_1 == 0) {
            S[i] = S_part[0];
          }
        }
        """  # noqa: E501
    )


@pytest.mark.parametrize("threads", [8, 32, 128])
def test_texts_run(threads: int) -> None:
    """As threads of the host: sums, the greatest of each row with its place, and softmax in one kernel."""
    rng = np.random.default_rng(threads)
    x, total = rng.uniform(-1, 1, (3, 150)).astype(np.float32), np.zeros(3, np.float32)
    text = run_cuda_on_host(kernels(row_sums(3, 150, threads).state, shuffles=True), x, total)
    np.testing.assert_allclose(total, x.sum(axis=1), rtol=1e-4, atol=1e-4)
    assert "__shfl_xor_sync" in text
    _, place, value = argmax(4, 90)
    s = te.create_schedule([place, value])
    reduce_together(s, place, threads)
    s[place].bind(s[place].op.axis[0], BLOCK)
    data = rng.integers(-9, 9, (4, 90)).astype(np.int32)
    where, greatest = np.zeros(4, np.int32), np.zeros(4, np.int32)
    run_cuda_on_host(kernels(s.state, shuffles=True), data, where, greatest)
    np.testing.assert_array_equal(greatest, data.max(axis=1))
    np.testing.assert_array_equal(where, data.argmax(axis=1))


def any_of(threads: int) -> Any:
    """Whether any of a row is more than 3: a reduction of bools."""
    x = te.placeholder((3, 133), "int32", name="X")
    k = te.reduce_axis((0, 133), name="k")
    either = te.comm_reducer(lambda p, q: p | q, lambda dtype: te.const(False, "bool"), name="any")
    S = te.compute((3,), lambda i: either(x[i, k] > 3, axis=k, where=k > 1), name="S")
    s = te.create_schedule(S)
    reduce_together(s, S, threads)
    s[S].bind(S.op.axis[0], BLOCK)
    return s


def test_bools_are_reduced() -> None:
    for threads in (32, 64):
        assert distances(with_shuffles(any_of(threads)))


# -- faults that are planted -------------------------------------------------------------------------------


X, Y = Buffer("X", "int32", (4, 8)), Buffer("Y", "int32", (4, 8))
b, t = Var("b"), Var("t")


def program(made: Stmt, own: Buffer, threads: int = 8) -> LoopNest:
    """Every thread stores what it has after `made`."""
    body = seq(Store(own, (), Load(X, (b, t), "int32")), made, Store(Y, (b, t), Load(own, (), "int32")))
    whole = For(b, 4, LoopKind.BLOCK_X, For(t, threads, LoopKind.THREAD_X, Alloc(own, body)))
    return LoopNest("f", (X, Y), (), whole, (1,))


def exchanged(own: Buffer, distance: int = 1) -> Stmt:
    return shuffle(own, (), Load(own, (), "int32"), distance)


def test_threads_get_what_their_partners_have() -> None:
    x, y = np.arange(32, dtype=np.int32).reshape(4, 8), np.zeros((4, 8), np.int32)
    own = Buffer("V", "int32", (), "local")
    nest = program(exchanged(own, 2), own)
    check_kernels(nest)
    run_nest(nest, [x, y], check_races=True)
    np.testing.assert_array_equal(y, x[:, np.arange(8) ^ 2])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("divergent", "a shuffle that not all threads of a block come by"),
        ("vectorized", "a shuffle that not all threads of a block come by"),
        ("far", "threads 8 apart are not all in one warp, of 8 in a row"),
        ("no power", "threads 3 apart are not all in one warp"),
        ("shared", "which is no thread's own"),
        ("inside", "a shuffle that is not the whole value of a store"),
        ("condition", "a shuffle that is not the whole value of a store"),
    ],
)
def test_what_warps_cannot_do_is_found(fault: str, message: str) -> None:
    own = Buffer("V", "int32", (), "local")
    made = exchanged(own, {"far": 8, "no power": 3}.get(fault, 1))
    assert isinstance(made, Store)
    if fault == "divergent":
        made = If(t < 4, made)
    elif fault == "vectorized":
        made = For(Var("v"), 4, LoopKind.VECTORIZED, made)
    elif fault == "inside":
        made = Store(own, (), Binary(BinaryOp.ADD, made.value, const(1), "int32"))
    elif fault == "condition":
        made = If(Binary(BinaryOp.LT, made.value, const(1), "bool"), Store(own, (), const(1)))
    nest = program(made, own)
    if fault == "shared":
        tile = Buffer("T", "int32", (8,), "shared")
        filled = shuffle(tile, (t,), Load(X, (b, t), "int32"), 1)
        nest = program(Alloc(tile, filled), own)
    with pytest.raises(LoweringError, match=message):
        check_kernels(nest)


def test_the_interpreter_wants_all_threads_too() -> None:
    arrays = [np.zeros((4, 8), np.int32), np.zeros((4, 8), np.int32)]
    own = Buffer("V", "int32", (), "local")
    with pytest.raises(RunError, match=r"4 of the 8 threads of a block come by `V\[\] = shuffle_xor"):
        run_nest(program(If(t < 4, exchanged(own)), own), arrays)
    with pytest.raises(RunError, match="asks a thread that does not come by"):
        run_nest(program(exchanged(own, 8), own), arrays)


def test_the_barrier_between_warps_is_needed() -> None:
    s = row_sums(3, 150, 128)
    nest = with_shuffles(s)
    assert count(nest.body, Barrier) == 1
    planted = LoopNest(nest.name, nest.params, nest.sizes, without_barrier(nest.body, 0), nest.outputs)
    with pytest.raises(RunError, match="with no barrier between"):
        Case.of(s.state).check_interpreted(planted, check_races=True)
