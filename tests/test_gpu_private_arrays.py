"""Loops over the elements of small private arrays are unrolled."""

from textwrap import dedent

import pytest

from ansor.ir.nest import Alloc, Buffer, For, LoopKind, Store, seq
from ansor.ir.passes.kernel_pipeline import THREAD_LIMITS
from ansor.ir.passes.private_arrays import unroll_private_arrays
from ansor.ir.printer import format_stmt
from ansor.te.expr import Load, Var, cast, const

i, j, k, t = Var("i"), Var("j"), Var("k"), Var("t")
X, Y = Buffer("X", "int32", (64, 64)), Buffer("Y", "int32", (64, 64))


def load(buffer, *indices):
    return Load(buffer, tuple(const(x) if isinstance(x, int) else x for x in indices), buffer.dtype)


def loop(var, extent, body, kind=LoopKind.SERIAL):
    return For(var, extent, kind, body)


def accumulate(private, extent, index=i):
    """Sums of `extent` columns in private memory."""
    add = Store(private, (index,), load(private, index) + cast(load(X, k, i), private.dtype))
    out = loop(j, extent, Store(Y, (t, j), cast(load(private, j), "int32")))
    body = seq(loop(k, 64, loop(i, extent, add)), out)
    return For(t, 8, LoopKind.THREAD_X, Alloc(private, body))


def test_all_loops_that_decide_an_index():
    private = Buffer("L", "int32", (4,), "local")
    assert format_stmt(unroll_private_arrays(accumulate(private, 4), THREAD_LIMITS)) == dedent(
        """\
        threadIdx.x t in 0..8:
          allocate L[4] int32 local
          for k in 0..64:
            unroll i in 0..4:
              L[i] = L[i] + X[k, i]
          unroll j in 0..4:
            Y[t, j] = L[j]"""
    )


@pytest.mark.parametrize(
    ("private", "index"),
    [
        (Buffer("L", "int32", (64,), "shared"), i),
        (Buffer("L", "int64", (65,), "local"), i),
        (Buffer("L", "int32", (64,), "local"), t),
        (Buffer("L", "int32", (64,), "local"), load(X, k, i)),
    ],
    ids=["shared", "too large", "a thread's number", "data"],
)
def test_arrays_that_stay_in_memory(private, index):
    stmt = accumulate(private, 8, index)
    assert unroll_private_arrays(stmt, THREAD_LIMITS) is stmt


def test_reductions_between_the_loops_are_loops_where_the_code_would_be_long():
    """Sums that no compiler finds in registers cost more than any loop."""
    private = Buffer("L", "int32", (8, 16), "local")
    unrolled = LoopKind.UNROLLED

    def program(terms):
        add = Store(private, (i, j), load(private, i, j) + load(X, k, i) * load(Y, k, j))
        update = loop(i, 8, loop(k, terms, loop(j, 16, add, unrolled), unrolled))
        out = loop(i, 8, loop(j, 16, Store(Y, (i, j), load(private, i, j))))
        return For(t, 8, LoopKind.THREAD_X, Alloc(private, seq(update, out)))

    kept = format_stmt(unroll_private_arrays(program(8), THREAD_LIMITS))
    assert "for" not in kept
    rolled = format_stmt(unroll_private_arrays(program(16), THREAD_LIMITS))
    assert rolled == kept.replace("unroll k in 0..8", "for k in 0..16")


def test_code_that_would_be_long_stays_loops():
    """Of too many stores, or of too many instructions; no loop is unrolled for nothing."""
    private = Buffer("L", "int32", (128,), "local")
    many = seq(*(Store(private, (i * 8 + j,), load(X, i, j) + n) for n in range(10)))
    stmt = For(t, 8, LoopKind.THREAD_X, Alloc(private, loop(i, 16, loop(j, 8, many))))
    assert unroll_private_arrays(stmt, THREAD_LIMITS) is stmt
    value = load(X, i, i)
    for n in range(300):
        value = value * load(X, i, n % 64)
    stmt = For(t, 8, LoopKind.THREAD_X, Alloc(private, loop(i, 64, Store(private, (i,), value))))
    assert unroll_private_arrays(stmt, THREAD_LIMITS) is stmt


def test_a_loop_around_an_array_stays_a_loop():
    private = Buffer("L", "int32", (4,), "local")
    body = seq(loop(j, 4, Store(private, (j,), load(X, i, j))), Store(Y, (t, i), load(private, i)))
    stmt = For(t, 8, LoopKind.THREAD_X, loop(i, 4, Alloc(private, body)))
    assert unroll_private_arrays(stmt, THREAD_LIMITS) is stmt
