"""Loops over virtual threads move to the statements that depend on them."""

from textwrap import dedent

import pytest

from ansor import te
from ansor.errors import ScheduleError
from ansor.ir.nest import Alloc, Buffer, For, If, Let, LoopKind, Store, seq
from ansor.ir.passes.virtual_threads import inject_virtual_threads
from ansor.ir.printer import format_stmt
from ansor.te.expr import Load, Var, const
from tests.gpu_schedules import check_schedule, text_of
from tests.schedule_helper import product

v, i, j = Var("v"), Var("i"), Var("j")
X, Y = Buffer("X", "int32", (4, 8)), Buffer("Y", "int32", (4, 8))


def load(buffer, *indices):
    return Load(buffer, tuple(const(x) if isinstance(x, int) else x for x in indices), buffer.dtype)


def store(buffer, indices, value):
    return Store(buffer, tuple(const(x) if isinstance(x, int) else x for x in indices), value)


def serial(var, extent, body, kind=LoopKind.SERIAL):
    return For(var, extent, kind, body)


def virtual(body, extent=2):
    return For(v, extent, LoopKind.VTHREAD, body)


def becomes(stmt, expected):
    assert format_stmt(inject_virtual_threads(stmt)) == dedent(expected).strip("\n")


def test_what_does_not_depend_on_them_is_done_once():
    shared, local = Buffer("S", "int32", (8,), "shared"), Buffer("L", "int32", (4,), "local")
    product = load(local, 0) + load(shared, v * 4 + i)
    body = seq(
        store(local, (0,), const(0)),
        serial(i, 4, seq(store(shared, (i,), load(X, 0, i)), store(local, (0,), product))),
        store(Y, (v, 0), load(local, 0)),
    )
    becomes(
        Alloc(shared, virtual(Alloc(local, body))),
        """
        allocate S[8] int32 shared
        allocate L[2, 4] int32 local
        unroll v in 0..2:
          L[v, 0] = 0
        for i in 0..4:
          S[i] = X[0, i]
          unroll v_1 in 0..2:
            L[v_1, 0] = L[v_1, 0] + S[v_1*4 + i]
        unroll v_2 in 0..2:
          Y[v_2, 0] = L[v_2, 0]
        """,
    )


def test_private_memory_that_is_the_same_for_all_stays_one():
    local = Buffer("L", "int32", (4,), "local")
    body = seq(serial(i, 4, store(local, (i,), load(X, 0, i))), store(Y, (v, 0), load(local, 3)))
    becomes(
        virtual(Alloc(local, body)),
        """
        allocate L[4] int32 local
        for i in 0..4:
          L[i] = X[0, i]
        unroll v in 0..2:
          Y[v, 0] = L[3]
        """,
    )


def test_dependence_goes_by_way_of_memory_variables_and_conditions():
    a, b = Buffer("P", "int32", (1,), "local"), Buffer("Q", "int32", (1,), "local", (4,))
    x = Var("x")
    body = seq(
        store(b, (0,), const(0)),
        If(v < 1, store(a, (0,), const(1)), store(a, (0,), const(2))),
        If(load(X, 0, 0) < 3, store(b, (0,), load(a, 0))),
        Let(x, load(b, 0), store(Y, (v, 0), x)),
    )
    becomes(
        virtual(Alloc(a, Alloc(b, body))),
        """
        allocate P[2, 1] int32 local
        allocate Q[2, 1] int32 local strides [4, 4]
        unroll v in 0..2:
          Q[v, 0] = 0
        unroll v_1 in 0..2:
          if v_1 < 1:
            P[v_1, 0] = 1
          else:
            P[v_1, 0] = 2
        if X[0, 0] < 3:
          unroll v_2 in 0..2:
            Q[v_2, 0] = P[v_2, 0]
        unroll v_3 in 0..2:
          let x: int32 = Q[v_3, 0]
          Y[v_3, 0] = x
        """,
    )


def test_vector_loops_stay_whole_and_loops_of_other_extents_are_repeated():
    local = Buffer("L", "int32", (8,), "local")
    body = seq(
        serial(i, 8, store(local, (i,), load(X, v, i)), LoopKind.VECTORIZED),
        serial(j, v + 1, store(Y, (v, j), load(local, j))),
    )
    becomes(
        virtual(Alloc(local, body)),
        """
        allocate L[2, 8] int32 local
        unroll v in 0..2:
          vectorize i in 0..8:
            L[v, i] = X[v, i]
        unroll v_1 in 0..2:
          for j in 0..v_1 + 1:
            Y[v_1, j] = L[v_1, j]
        """,
    )


def test_memory_inside_of_what_is_repeated_does_not_grow():
    local, k = Buffer("L", "int32", (1,), "local"), Var("k")
    inner = Alloc(local, seq(store(local, (0,), v), store(Y, (v, k), load(local, 0))))
    becomes(
        virtual(serial(k, v + 2, inner)),
        """
        unroll v in 0..2:
          for k in 0..v + 2:
            allocate L[1] int32 local
            L[0] = v
            Y[v, k] = L[0]
        """,
    )


def test_many_virtual_threads_are_a_loop():
    body = store(Y, (0, v), load(X, 0, v))
    assert format_stmt(inject_virtual_threads(virtual(body, 16))).startswith("unroll v in 0..16")
    assert format_stmt(inject_virtual_threads(virtual(body, 17))).startswith("for v in 0..17")


def test_virtual_threads_of_several_loops_are_many_together():
    w = Var("w")
    inner = For(w, 4, LoopKind.VTHREAD, store(Y, (v, w), load(X, v, w)))
    becomes(
        virtual(inner, 8),
        """
        for w in 0..4:
          unroll v in 0..8:
            Y[v, w] = X[v, w]
        """,
    )


def test_several_loops_over_virtual_threads():
    local, w = Buffer("L", "int32", (1,), "local"), Var("w")
    inner = Alloc(local, seq(store(local, (0,), v + w), store(Y, (v, w), load(local, 0))))
    becomes(
        virtual(For(w, 3, LoopKind.VTHREAD, inner)),
        """
        allocate L[2, 3, 1] int32 local
        unroll w in 0..3:
          unroll v in 0..2:
            L[v, w, 0] = v + w
        unroll w_1 in 0..3:
          unroll v_1 in 0..2:
            Y[v_1, w_1] = L[v_1, w_1, 0]
        """,
    )


def test_a_symbolic_extent_is_refused():
    n = Var("n")
    with pytest.raises(ScheduleError, match="vthread 'v': its extent n is symbolic"):
        inject_virtual_threads(virtual(store(Y, (v, 0), v), n))


def test_what_virtual_threads_share_by_a_schedule():
    """The tile of A is loaded once, the sums of both virtual threads are in private memory."""
    A, _, C, s = product(4, 12, 8)
    local = s.cache_write(C, "local")
    i, j = s[C].op.axis
    j0, j1, j2 = s[C].split(j, factors=[2, 3])
    for loop, index in ((j0, "blockIdx.x"), (j1, "vthread"), (j2, "threadIdx.x")):
        s[C].bind(loop, te.thread_axis(index))
    s[C].reorder(j0, j1, j2, i)
    s[local].compute_at(s[C], j2)
    k0, k1 = s[local].split(s[local].op.reduce_axis[0], factor=4)
    s[local].reorder(k0, k1, *s[local].op.axis)
    shared = s.cache_read(A, "shared", [local])
    s[shared].compute_at(s[local], k0)
    fused = s[shared].fuse(*s[shared].op.axis)
    _, thread = s[shared].split(fused, factor=3)
    s[shared].bind(thread, te.thread_axis("threadIdx.x"))
    text = text_of(check_schedule(s))
    assert "allocate C.local[2, 4, 1] float32 local" in text
    assert text.count("A.shared[") == 3  # where it is allocated, loaded and read
    assert text.count("unroll j.1") == 3
