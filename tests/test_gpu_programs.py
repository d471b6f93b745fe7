"""Whole GPU programs by hand: their text, and that they compute what their graphs say without races."""

from dataclasses import replace
from textwrap import dedent

import pytest

import ansor
from ansor import te
from ansor.ir.kernel_form import check_kernels, kernels_of
from ansor.ir.nest import Alloc, Barrier, For, LoopKind, walk_statements
from ansor.ir.passes.kernel_pipeline import THREAD_LIMITS
from ansor.schedule.lowering import lower
from tests.gpu_schedules import (
    argmax,
    bind_all,
    check_schedule,
    count,
    kernels,
    load_together,
    matmul,
    text_of,
    tiled_matmul,
)
from tests.program_laws import Case
from tests.schedule_helper import matrix, product

BLOCK, THREAD = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")


def test_a_matmul():
    """A tile per block, two virtual threads, sums in private memory, inputs through shared memory."""
    s = tiled_matmul((4, 16, 8), (2, 2, 1), (1, 4, 2), 4)
    assert text_of(check_schedule(s)) == dedent(
        """\
        blockIdx.x i.0@j.0@ in 0..2:
          threadIdx.x i.2@j.2@ in 0..8:
            allocate B.shared[4, 8] float32 shared
            allocate A.shared[4, 4] float32 shared
            allocate C.local[2, 1, 2] float32 local
            unroll j_c.3 in 0..2:
              unroll i.1@j.1@ in 0..2:
                C.local[i.1@j.1@, 0, j_c.3] = 0.0
            for k.0 in 0..2:
              barrier
              for ax0@ax1@.0.0 in 0..2:
                A.shared[ax0@ax1@.0.0*2 + i.2@j.2@//4, i.2@j.2@%4] = A[ax0@ax1@.0.0*2 + i.2@j.2@//4, k.0*4 + i.2@j.2@%4]
              for ax0@ax1@.0.0_1 in 0..4:
                B.shared[ax0@ax1@.0.0_1, i.2@j.2@] = B[k.0*4 + ax0@ax1@.0.0_1, i.0@j.0@*8 + i.2@j.2@]
              barrier
              for k.1 in 0..4:
                unroll j_c.3_1 in 0..2:
                  unroll i.1@j.1@_1 in 0..2:
                    C.local[i.1@j.1@_1, 0, j_c.3_1] = C.local[i.1@j.1@_1, 0, j_c.3_1] + A.shared[i.1@j.1@_1*2 + i.2@j.2@//4, k.1]*B.shared[k.1, i.2@j.2@%4*2 + j_c.3_1]
            unroll j.3 in 0..2:
              unroll i.1@j.1@_2 in 0..2:
                C[i.1@j.1@_2*2 + i.2@j.2@//4, i.0@j.0@*8 + i.2@j.2@%4*2 + j.3] = C.local[i.1@j.1@_2, 0, j.3]"""  # noqa: E501
    )


@pytest.mark.parametrize("sizes", [(1, 1, 1), (8, 16, 8), (9, 17, 5), (33, 50, 30), (3, 100, 2), (64, 1, 7)])
@pytest.mark.parametrize(
    ("i_tile", "j_tile", "k_tile", "vector", "unroll"),
    [((2, 4, 2), (2, 8, 2), 7, 2, 0), ((1, 1, 3), (4, 16, 1), 4, 1, 512), ((3, 5, 1), (1, 3, 4), 1, 4, 16)],
)
def test_matmuls_of_any_size(sizes, i_tile, j_tile, k_tile, vector, unroll):
    check_schedule(tiled_matmul(sizes, i_tile, j_tile, k_tile, vector, unroll))


def test_padded_shared_memory():
    """Rows of another length against bank conflicts."""
    A, _, C, s = product(8, 8, 8)
    i, j = s[C].op.axis
    s[C].bind(i, BLOCK)
    s[C].bind(j, THREAD)
    shared = s.cache_read(A, "shared", [C])
    s[shared].compute_at(s[C], i)
    s[shared].storage_align(s[shared].op.axis[0], 32, 1)
    load_together(s, shared, 8)
    assert "allocate A.shared[1, 8] float32 shared strides [33, 1]" in text_of(check_schedule(s))


def test_elementwise():
    _, B, s = matrix(9, 8)
    bind_all(s, B, 16)
    assert text_of(check_schedule(s)) == dedent(
        """\
        blockIdx.x i@j@.0 in 0..5:
          threadIdx.x i@j@.1 in 0..16:
            if i@j@.0*16 + i@j@.1 < 72:
              B[i@j@.0*2 + i@j@.1//8, i@j@.1%8] = A[i@j@.0*2 + i@j@.1//8, i@j@.1%8]*2.0"""
    )


def test_two_kernels_and_what_is_between_them():
    """A stage at root is in global memory, whatever scope it was given."""
    a = te.placeholder((6, 10), name="A")
    b = te.compute((6, 10), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((10, 6), lambda i, j: b[j, i] + b[5 - j, i], name="C")
    s = te.create_schedule(c)
    s[b].set_scope("shared")
    bind_all(s, b, 8)
    bind_all(s, c, 8)
    nest = check_schedule(s)
    assert len(kernels_of(nest)) == 2
    assert text_of(nest).startswith("allocate B[6, 10] float32 global")
    assert count(nest.body, Barrier) == 0


def test_pooling():
    """Sums of global memory are kept in a register."""
    x = te.placeholder((8, 15), name="X")
    r, q = te.reduce_axis((0, 2), name="r"), te.reduce_axis((0, 3), name="q")
    p = te.compute((4, 5), lambda i, j: te.max(x[i * 2 + r, j * 3 + q], axis=[r, q]), name="P")
    s = te.create_schedule(p)
    s[p].pragma(s[p].op.axis[0], "auto_unroll_max_step", 16)
    bind_all(s, p, 10)
    assert text_of(check_schedule(s)) == dedent(
        """\
        blockIdx.x i@j@.0 in 0..2:
          threadIdx.x i@j@.1 in 0..10:
            allocate P.acc[] float32 register
            P.acc[] = -inf
            unroll r in 0..2:
              unroll q in 0..3:
                P.acc[] = max(P.acc[], X[i@j@.0*4 + i@j@.1//5*2 + r, i@j@.1%5*3 + q])
            P[i@j@.0*2 + i@j@.1//5, i@j@.1%5] = P.acc[]"""
    )


def test_scalars():
    """Nothing to bind: one thread."""
    a = te.placeholder((), name="A")
    b = te.compute((), lambda: a[()] * 2.0, name="B")
    c = te.compute((), lambda: b[()] + a[()], name="C")
    s = te.create_schedule(c)
    nest = check_schedule(s)
    assert text_of(nest) == dedent(
        """\
        allocate B[] float32 global
        blockIdx.x block in 0..1:
          B[] = A[]*2.0
        blockIdx.x block_1 in 0..1:
          C[] = B[] + A[]"""
    )
    assert len(kernels_of(nest)) == 2


def test_axes_of_one_element():
    _, _, c = matmul(1, 1, 5)
    s = te.create_schedule(c)
    nest = check_schedule(s)
    loops = [x for x in walk_statements(nest.body) if isinstance(x, For) and x.kind is not LoopKind.SERIAL]
    assert [(loop.kind, loop.extent) for loop in loops] == [(LoopKind.BLOCK_X, 1)]


def test_a_stage_that_one_thread_computes_is_one_kernel():
    """Its statements, initial values and what they are combined with, stay together."""
    _, place, value = argmax(1, 9)
    assert len(kernels_of(check_schedule(te.create_schedule([place, value])))) == 1
    best = te.compute((1,), lambda i: value[i] + place[i], name="C")
    assert len(kernels_of(check_schedule(te.create_schedule(best)))) == 2


def test_sums_in_memory_over_fused_axes_of_symbolic_extents():
    """No thread touches an element of another, so none waits."""
    n, m = te.var("n"), te.var("m")
    x, y = te.placeholder((n, m), name="X"), te.placeholder((m,), "int32", name="Y")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(x[i, j], axis=k, where=y[j] > k), name="C")
    for vector in (1, 4):
        s = te.create_schedule(c)
        outer, inner = s[c].split(s[c].fuse(*c.op.axis), factor=vector)
        s[c].vectorize(inner)
        block, thread = s[c].split(outer, factor=16)
        s[c].bind(block, BLOCK)
        s[c].bind(thread, THREAD)
        nest = kernels(s)
        assert count(nest.body, Barrier) == 0
        Case.of(s.state, {n: 5, m: 7}).check_interpreted(nest, check_races=True)


def test_a_result_of_several_stages_in_one_kernel():
    """Two stages in shared memory, one computed from the other, both by all threads."""
    a = te.placeholder((30,), name="A")
    b = te.compute((30,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((28,), lambda i: b[i] + b[i + 2], name="C")
    d = te.compute((26,), lambda i: c[i] * c[i + 2], name="D")
    s = te.create_schedule(d)
    outer, inner = s[d].split(d.op.axis[0], factor=7)
    s[d].bind(outer, BLOCK)
    s[d].bind(inner, THREAD)
    for stage in (c, b):
        s[stage].compute_at(s[d], outer)
        s[stage].set_scope("shared")
        load_together(s, stage, 7)
    nest = check_schedule(s)
    assert count(nest.body, Barrier) == 2
    assert {x.buffer.scope for x in walk_statements(nest.body) if isinstance(x, Alloc)} == {"shared"}


@pytest.mark.parametrize("max_step", [0, 16, 64, 512, 1024])
def test_pragmas_unroll_as_many_steps_as_they_say(max_step):
    """A step of each virtual thread counts, loops over threads do not; elements are unrolled anyway."""
    s = tiled_matmul((32, 32, 64), (2, 4, 2), (1, 4, 2), 32, unroll=max_step)
    loops = [x for x in walk_statements(check_schedule(s).body) if isinstance(x, For)]
    unrolled = {loop.var.name for loop in loops if loop.kind is LoopKind.UNROLLED}
    assert {"i_c.3", "j_c.3", "i.1@j.1@"} <= unrolled
    assert ("ax0@ax1@.0.0" in unrolled) == (max_step >= 2 * 16)  # A.shared, 16 elements of each thread
    assert ("k.1" in unrolled) == (max_step >= 32 * 4 * 2)


def test_large_tiles_accumulate_where_they_are():
    """More elements than a thread has registers for."""
    _, _, C, s = product(64, 64, 4)
    i, j = s[C].op.axis
    s[C].bind(s[C].split(i, factor=32)[0], BLOCK)
    s[C].bind(s[C].split(j, factor=32)[0], THREAD)
    i0, i1, j0, j1, k = s[C].leaf_iter_vars
    s[C].reorder(i0, j0, k, i1, j1)
    assert "C.acc" not in text_of(check_schedule(s))


def test_registers_are_those_of_a_thread_whatever_limits_are_given():
    """A thread of a GPU has no lanes to reduce in, and loops over threads are no code of its own."""
    s = tiled_matmul((16, 16, 16), (1, 4, 2), (1, 4, 2), 4, unroll=64)
    as_given = lower(s, name="kernel", kernels=True, limits=replace(THREAD_LIMITS, per_thread=False))
    assert str(as_given) == str(lower(s, name="kernel", kernels=True))


def test_lowering_for_a_target():
    """`lower` makes kernels for GPUs, loops as they are bound in simple mode."""
    _, B, s = matrix(5, 13)
    bind_all(s, B, 16)
    tensors = list(s.dag.tensors)
    for target in ("cuda", "opencl", "vulkan -max_num_threads=256"):
        nest = ansor.lower(s, tensors, target=target)
        check_kernels(nest)
        assert str(nest) == str(lower(s, tensors, kernels=True))
    simple = ansor.lower(s, tensors, target="cuda", simple_mode=True)
    assert str(simple) == str(ansor.lower(s, tensors, simple_mode=True))
