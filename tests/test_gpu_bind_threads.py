"""Bound loops become the launch of a kernel, and memory goes where it has to be."""

from textwrap import dedent

import pytest

from ansor import te
from ansor.errors import ScheduleError
from ansor.ir.nest import Alloc, Barrier, Buffer, For, Let, LoopKind, Store, seq
from ansor.ir.passes.bind_threads import bind_threads
from ansor.ir.printer import format_stmt
from ansor.schedule.lowering import lower
from ansor.te.expr import Load, Var, const
from tests.gpu_schedules import check_schedule, kernels, matmul, text_of
from tests.schedule_helper import chain, matrix, product

BLOCK, THREAD = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")


def bound(s, expected):
    """The nest as the schedule says it, bound, is as expected; and the kernels are right."""
    found = format_stmt(bind_threads(lower(s, simple_mode=True).body, "C"))
    assert found == dedent(expected).strip("\n")
    check_schedule(s)


def test_loops_of_one_index_side_by_side():
    """The longest is the launch; the other is tested. What threads fill, they share."""
    _, B, C, s = chain()
    outer, inner = s[C].split(s[C].op.axis[0], factor=5)
    s[C].bind(outer, BLOCK)
    s[C].bind(inner, THREAD)
    s[B].compute_at(s[C], outer)
    s[B].bind(s[B].op.axis[0], THREAD)
    bound(
        s,
        """
        blockIdx.x i.0 in 0..2:
          threadIdx.x i in 0..7:
            allocate B[7] float32 shared
            B[i] = A[i.0*5 + i]*2.0
            if i < 5:
              C[i.0*5 + i] = B[i] + B[i + 1] + B[i + 2]
        """,
    )


def test_a_tile_that_all_threads_load_inside_of_a_loop_over_their_work():
    """The inner loop takes the threads of the outer one, whose own guard does not hold there."""
    A, _, C, s = product(4, 3, 8)
    i, j = s[C].op.axis
    k_outer, k_inner = s[C].split(s[C].op.reduce_axis[0], factor=4)
    s[C].reorder(i, j, k_outer, k_inner)
    s[C].bind(i, BLOCK)
    s[C].bind(j, THREAD)
    shared = s.cache_read(A, "shared", [C])
    s[shared].compute_at(s[C], k_outer)
    s[shared].bind(s[shared].op.axis[1], THREAD)
    bound(
        s,
        """
        blockIdx.x i in 0..4:
          threadIdx.x ax1 in 0..4:
            allocate A.shared[1, 4] float32 shared
            if ax1 < 3:
              C[i, ax1] = 0.0
            for k.0 in 0..2:
              A.shared[0, ax1] = A[i, k.0*4 + ax1]
              for k.1 in 0..4:
                if ax1 < 3:
                  C[i, ax1] = C[i, ax1] + A.shared[0, k.1]*B[k.0*4 + k.1, ax1]
        """,
    )


def test_what_no_thread_index_is_bound_for_the_first_thread_stores():
    """B is computed before the threads begin; it is shared, as it is of scope "global"."""
    _, B, C, s = chain()
    outer, inner = s[C].split(s[C].op.axis[0], factor=5)
    s[C].bind(outer, BLOCK)
    s[C].bind(inner, THREAD)
    s[B].compute_at(s[C], outer)
    bound(
        s,
        """
        blockIdx.x i.0 in 0..2:
          threadIdx.x i.1 in 0..5:
            allocate B[7] float32 shared
            for i in 0..7:
              if i.1 == 0:
                B[i] = A[i.0*5 + i]*2.0
            C[i.0*5 + i.1] = B[i.1] + B[i.1 + 1] + B[i.1 + 2]
        """,
    )


def test_one_thread_alone_computes_what_it_stores():
    """Not only the store: the value is computed from what the store overwrites."""
    t, x = Var("t"), Var("x")
    shared, out = Buffer("S", "int32", (8,), "shared"), Buffer("Y", "int32", (1,))
    value = Load(out, (const(0),), "int32") + Load(shared, (const(3),), "int32")
    update = Let(x, value, Store(out, (const(0),), x))
    nest = Alloc(shared, seq(For(t, 8, LoopKind.THREAD_X, Store(shared, (t,), t)), update))
    assert format_stmt(bind_threads(nest, "Y")) == dedent(
        """\
        threadIdx.x t in 0..8:
          allocate S[8] int32 shared
          S[t] = t
          if t == 0:
            let x: int32 = Y[0] + S[3]
            Y[0] = x"""
    )


def test_one_thread_alone_stores_all_that_is_computed_together():
    """Under one condition; what stores nothing needs none."""
    t, x, y = Var("t"), Var("x"), Var("y")
    first, second = Buffer("Y", "int32", (1,)), Buffer("Z", "int32", (1,))
    stores = seq(Store(first, (const(0),), x), Store(second, (const(0),), y))
    both = Let(x, Load(first, (const(0),), "int32") + 1, Let(y, x + 1, stores))
    nest = For(t, 8, LoopKind.THREAD_X, seq(both, Let(Var("z"), t + 1, Barrier())))
    assert format_stmt(bind_threads(nest, "Y")) == dedent(
        """\
        threadIdx.x t in 0..8:
          if t == 0:
            let x: int32 = Y[0] + 1
            let y: int32 = x + 1
            Y[0] = x
            Z[0] = y
          let z: int32 = t + 1
          barrier"""
    )


@pytest.mark.parametrize(("scope", "place"), [("global", "inner"), ("local", "inner"), ("local", "outer")])
def test_private_memory_is_computed_by_each_thread(scope, place):
    _, B, C, s = chain()
    outer, inner = s[C].split(s[C].op.axis[0], factor=5)
    s[C].bind(outer, BLOCK)
    s[C].bind(inner, THREAD)
    s[B].compute_at(s[C], {"inner": inner, "outer": outer}[place])
    s[B].set_scope(scope)
    length, index = (3, "") if place == "inner" else (7, "i.1 + ")
    text = text_of(check_schedule(s))
    assert f"allocate B[{length}] float32 local" in text
    assert f"B[{index}1]" in text
    assert "barrier" not in text
    assert "if" not in text


def test_threads_of_one_index_may_fill_memory_for_each_of_another():
    """A row of B for each thread in y."""
    A = te.placeholder((6, 8), name="A")
    B = te.compute((6, 8), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((6, 8), lambda i, j: B[i, 7 - j], name="C")
    s = te.create_schedule(C)
    i, j = s[C].op.axis
    s[C].bind(i, te.thread_axis("threadIdx.y"))
    s[C].bind(j, THREAD)
    s[B].compute_at(s[C], i)
    s[B].bind(s[B].op.axis[1], THREAD)
    bound(
        s,
        """
        threadIdx.y i in 0..6:
          threadIdx.x j in 0..8:
            allocate B[6, 1, 8] float32 shared
            B[i, 0, j] = A[i, j]*2.0
            C[i, j] = B[i, 0, 7 - j]
        """,
    )


def test_shared_memory_is_there_once_for_a_block():
    """Also where a loop over blocks stands inside of one over threads."""
    A = te.placeholder((6, 8), name="A")
    C = te.compute((6, 8), lambda i, j: A[i, j] + 1.0, name="C")
    s = te.create_schedule(C)
    i, j = s[C].op.axis
    outer, inner = s[C].split(j, factor=4)
    s[C].bind(i, te.thread_axis("threadIdx.y"))
    s[C].bind(outer, BLOCK)
    s[C].bind(inner, THREAD)
    shared = s.cache_read(A, "shared", [C])
    s[shared].compute_at(s[C], outer)
    s[shared].bind(s[shared].op.axis[1], THREAD)
    assert "allocate A.shared[6, 4] float32 shared" in text_of(check_schedule(s))


def test_blocks_nest_outside_of_threads_in_the_order_z_y_x():
    _, B, s = matrix(4, 6)
    i, j = s[B].op.axis
    s[B].bind(j, te.thread_axis("threadIdx.y"))
    i_outer, i_inner = s[B].split(i, factor=2)
    s[B].bind(i_inner, te.thread_axis("blockIdx.z"))
    s[B].bind(i_outer, BLOCK)
    s[B].reorder(j, i_outer, i_inner)
    lines = text_of(check_schedule(s)).splitlines()
    assert [line.strip() for line in lines] == [
        "blockIdx.z i.1 in 0..2:",
        "blockIdx.x i.0 in 0..2:",
        "threadIdx.y j in 0..6:",
        "B[i.0*2 + i.1, j] = A[i.0*2 + i.1, j]*2.0",
    ]


def test_indices_of_one_iteration_are_left_out():
    _, B, s = matrix(1, 6)
    i, j = s[B].op.axis
    s[B].bind(i, BLOCK)
    s[B].bind(j, THREAD)
    assert text_of(check_schedule(s)) == "threadIdx.x j in 0..6:\n  B[0, j] = A[0, j]*2.0"
    t, y = Var("t"), Buffer("Y", "int32", (1,))
    assert format_stmt(bind_threads(For(t, 1, LoopKind.THREAD_X, Store(y, (t,), t)), "Y")) == (
        "blockIdx.x block in 0..1:\n  Y[0] = 0"
    )


def test_a_loop_that_reduces_outside_of_the_threads():
    """Elements are initialised in a copy of the loop over threads."""
    _, _, C, s = product(4, 6, 8)
    i, j = s[C].op.axis
    s[C].reorder(s[C].op.reduce_axis[0], i, j)
    s[C].bind(i, BLOCK)
    s[C].bind(j, THREAD)
    bound(
        s,
        """
        blockIdx.x i in 0..4:
          threadIdx.x j in 0..6:
            C[i, j] = 0.0
            for k in 0..8:
              C[i, j] = C[i, j] + A[i, k]*B[k, j]
        """,
    )


def test_a_vector_loop_around_threads_is_none():
    _, B, s = matrix(4, 6)
    i, j = s[B].op.axis
    s[B].vectorize(i)
    s[B].bind(j, THREAD)
    assert "for i in 0..4" in text_of(check_schedule(s))


def test_sizes_may_be_in_the_extents_of_blocks_alone():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    s = te.create_schedule(B)
    outer, inner = s[B].split(B.op.axis[0], factor=64)
    s[B].bind(outer, BLOCK)
    s[B].bind(inner, THREAD)
    assert text_of(kernels(s)) == dedent(
        """\
        blockIdx.x i.0 in 0..(n + 63)//64:
          threadIdx.x i.1 in 0..64:
            if i.0*64 + i.1 < n:
              B[i.0*64 + i.1] = A[i.0*64 + i.1]*2.0"""
    )
    s = te.create_schedule(B)
    s[B].bind(B.op.axis[0], THREAD)
    with pytest.raises(
        ScheduleError, match=r"loop 'i' is bound to threadIdx.x and has the symbolic extent n"
    ):
        kernels(s)


# -- what no kernel can do -----------------------------------------------------------------------------------


def test_a_stage_at_root_has_to_be_bound():
    _, _, c = matmul(4, 4, 4)
    d = te.compute((4, 4), lambda i, j: c[i, j] + 1.0, name="D")
    s = te.create_schedule(d)
    s[d].bind(d.op.axis[0], BLOCK)
    with pytest.raises(
        ScheduleError, match="stage 'C' is a kernel of its own, and none of its loops is bound"
    ) as e:
        kernels(s)
    assert 's[C].bind(loop, te.thread_axis("blockIdx.x"))' in str(e.value)
    assert "i (0,4) [spatial]   <-- here" in str(e.value)
    s[c].compute_at(s[d], d.op.axis[1])
    check_schedule(s)


def test_parallel_loops_are_for_processors():
    _, B, s = matrix()
    s[B].parallel(B.op.axis[0])
    with pytest.raises(ScheduleError, match="loop 'i' of stage 'B' is annotated parallel, which is for CPUs"):
        kernels(s)


def test_threads_cannot_be_shared_out_twice():
    """Each thread would need a tile of its own, loaded by all of them."""
    _, B, C, s = chain()
    s[C].bind(s[C].op.axis[0], THREAD)
    s[B].compute_at(s[C], s[C].op.axis[0])
    s[B].bind(s[B].op.axis[0], THREAD)
    with pytest.raises(
        ScheduleError, match=r"loop 'i' is bound to threadIdx.x inside of loop 'i', which is bound"
    ):
        kernels(s)


def test_blocks_do_not_wait_for_each_other():
    _, B, C, s = chain()
    outer, inner = s[C].split(s[C].op.axis[0], nparts=1)
    s[B].compute_at(s[C], outer)
    s[B].bind(s[B].op.axis[0], BLOCK)
    s[C].bind(inner, BLOCK)
    with pytest.raises(ScheduleError, match="'B' is computed by all blocks and used by all of them"):
        kernels(s)


def test_memory_of_symbolic_size():
    n = te.var("n")
    A = te.placeholder((n, n), name="A")
    B = te.compute((n, n), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((n, n), lambda i, j: B[i, n - 1 - j], name="C")
    s = te.create_schedule(C)
    s[C].bind(C.op.axis[0], BLOCK)
    s[B].compute_at(s[C], C.op.axis[0])
    with pytest.raises(ScheduleError, match="'B' would need memory of symbolic size inside of the kernel"):
        kernels(s)


def test_loops_bound_to_one_index_with_different_symbolic_extents():
    n, b, c = Var("n"), Var("b"), Var("c")
    y = Buffer("Y", "int32", (n,))
    nest = seq(
        For(b, n, LoopKind.BLOCK_X, Store(y, (b,), b)), For(c, n + 1, LoopKind.BLOCK_X, Store(y, (c,), c))
    )
    with pytest.raises(
        ScheduleError, match=r"is bound to loop 'c' of extent .n \+ 1. and to loop 'b' of extent n"
    ):
        bind_threads(nest, "Y")


def test_private_memory_that_other_threads_read_is_shared():
    """Three threads of the outer loop compute T alike, the eight of the inner one read it."""
    t, u, i = Var("t"), Var("u"), Var("i")
    out, shared = Buffer("Y", "int32", (3,)), Buffer("S", "int32", (8,), "shared")
    private = Buffer("T", "int32", (8,), "local")
    fill = For(i, 8, LoopKind.SERIAL, Store(private, (i,), i))
    load = For(u, 8, LoopKind.THREAD_X, Store(shared, (u,), Load(private, (u,), "int32")))
    own = Store(out, (t,), Load(shared, (t + 5,), "int32"))
    nest = Alloc(shared, For(t, 3, LoopKind.THREAD_X, Alloc(private, seq(fill, load, own))))
    assert format_stmt(bind_threads(nest, "Y")) == dedent(
        """\
        threadIdx.x u in 0..8:
          allocate S[8] int32 shared
          allocate T[8] int32 shared
          for i in 0..8:
            if u < 3:
              if u == 0:
                T[i] = i
          S[u] = T[u]
          if u < 3:
            Y[u] = S[u + 5]"""
    )
