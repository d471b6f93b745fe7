"""What nothing reads is left out of kernels."""

from textwrap import dedent

from ansor import te
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, LoopKind, Store, seq, walk_statements
from ansor.ir.passes.unread import drop_unread
from ansor.ir.printer import format_stmt
from ansor.te.expr import Load, Var, const
from tests.gpu_schedules import check_schedule, load_together

i, t = Var("i"), Var("t")
X, Y = Buffer("X", "int32", (8, 8)), Buffer("Y", "int32", (8,))


def test_what_only_such_memory_is_filled_from_goes_too():
    first, second, third = (Buffer(name, "int32", (8,), "shared") for name in ("A", "B", "C"))
    fill = For(i, 8, LoopKind.SERIAL, If(t < 4, Store(first, (t,), Load(X, (i, t), "int32"))))
    copy = Store(second, (t,), Load(first, (t,), "int32"))
    keep = Store(third, (t,), const(1))
    body = seq(fill, copy, keep, Store(Y, (t,), Load(third, (t,), "int32")))
    kernel = For(t, 8, LoopKind.THREAD_X, Alloc(first, Alloc(second, Alloc(third, body))))
    assert format_stmt(drop_unread(kernel)) == dedent(
        """\
        threadIdx.x t in 0..8:
          allocate C[8] int32 shared
          C[t] = 1
          Y[t] = C[t]"""
    )


def test_a_sum_that_nobody_asks_for():
    total = Buffer("S", "int32", (8,), "shared")
    add = Store(total, (t,), Load(total, (t,), "int32") + Load(X, (i, t), "int32"))
    body = seq(Store(total, (t,), const(0)), For(i, 8, LoopKind.SERIAL, add), Store(Y, (t,), const(1)))
    kernel = For(t, 8, LoopKind.THREAD_X, Alloc(total, body))
    assert format_stmt(drop_unread(kernel)) == "threadIdx.x t in 0..8:\n  Y[t] = 1"


def test_what_is_read_stays():
    tile = Buffer("A", "int32", (8,), "shared")
    body = seq(Store(tile, (t,), const(1)), If(Load(tile, (t,), "int32") < 2, Store(Y, (t,), const(2))))
    kernel = For(t, 8, LoopKind.THREAD_X, Alloc(tile, body))
    assert drop_unread(kernel) is kernel


def test_a_kernel_for_nothing_is_left_out():
    """Nothing is left of the value that reads its result."""
    a = te.placeholder((40,), "int32", name="A")
    b = te.compute((40,), lambda x: a[x] * 3, name="B")
    c = te.compute((40,), lambda x: b[39 - x] - b[39 - x], name="C")
    s = te.create_schedule(c)
    for tensor in (b, c):
        s[tensor].bind(s[tensor].op.axis[0], te.thread_axis("threadIdx.x"))
    nest = check_schedule(s)
    assert not any(isinstance(stmt, Alloc) for stmt in walk_statements(nest.body))
    assert sum(isinstance(stmt, For) for stmt in walk_statements(nest.body)) == 1


def test_tiles_in_shared_memory_that_no_product_reads():
    a, b = te.placeholder((8, 16), "int32", name="A"), te.placeholder((16, 8), "int32", name="B")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((8, 8), lambda x, y: te.sum((a[x, k] - a[x, k]) * b[k, y], axis=k), name="C")
    s = te.create_schedule(c)
    s[c].bind(s[c].op.axis[0], te.thread_axis("blockIdx.x"))
    s[c].bind(s[c].op.axis[1], te.thread_axis("threadIdx.x"))
    outer, _ = s[c].split(k, factor=4)
    shared = s.cache_read(b, "shared", [c])
    s[shared].compute_at(s[c], outer)
    load_together(s, shared, 8)
    nest = check_schedule(s)
    found = list(walk_statements(nest.body))
    assert not any(isinstance(stmt, Barrier) for stmt in found)
    assert not any(isinstance(stmt, Alloc) and stmt.buffer.scope == "shared" for stmt in found)
