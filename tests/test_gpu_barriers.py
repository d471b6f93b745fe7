"""Barriers stand where a hazard is, and nowhere else."""

from textwrap import dedent

import numpy as np
import pytest

from ansor.errors import ScheduleError
from ansor.ir.bounds import Bounds
from ansor.ir.interp import run_nest
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, Let, LoopKind, LoopNest, Store, seq
from ansor.ir.passes import barriers
from ansor.ir.passes.barriers import place_barriers
from ansor.ir.passes.guards import simplify_guards
from ansor.ir.printer import format_stmt
from ansor.te.expr import Load, Var, const
from tests.gpu_schedules import count

t, u, b, k, i = Var("t"), Var("u"), Var("b"), Var("k"), Var("i")
X, Y = Buffer("X", "int32", (16, 8)), Buffer("Y", "int32", (16, 8))
S, R = Buffer("S", "int32", (8,), "shared"), Buffer("R", "int32", (8,), "shared")


def load(buffer, *indices):
    return Load(buffer, tuple(const(x) if isinstance(x, int) else x for x in indices), buffer.dtype)


def store(buffer, indices, value):
    return Store(buffer, tuple(const(x) if isinstance(x, int) else x for x in indices), value)


def kernel(body, threads=8):
    return For(b, 4, LoopKind.BLOCK_X, For(t, threads, LoopKind.THREAD_X, Alloc(S, Alloc(R, body))))


def loop(var, extent, body, kind=LoopKind.SERIAL):
    return For(var, extent, kind, body)


def placed(body, expected):
    """The text inside of the allocations, with barriers."""
    lines = format_stmt(place_barriers(kernel(body), Bounds({}))).splitlines()[4:]
    assert "\n".join(line[4:] for line in lines) == dedent(expected).strip("\n")


def untouched(body):
    one = kernel(body)
    assert place_barriers(one, Bounds({})) is one


FILL = store(S, (t,), load(X, b, t))
USE = store(Y, (b, t), load(S, const(7) - t))


def test_a_read_after_a_write():
    placed(seq(FILL, USE), "S[t] = X[b, t]\nbarrier\nY[b, t] = S[7 - t]")


def test_a_write_after_a_read():
    placed(
        seq(FILL, USE, store(S, (t,), t), store(Y, (b, t), load(S, 0))),
        """
        S[t] = X[b, t]
        barrier
        Y[b, t] = S[7 - t]
        barrier
        S[t] = t
        barrier
        Y[b, t] = S[0]
        """,
    )


def test_a_write_after_a_write():
    placed(seq(FILL, store(S, (const(7) - t,), t)), "S[t] = X[b, t]\nbarrier\nS[7 - t] = t")


def test_one_barrier_for_several_buffers():
    placed(
        seq(FILL, store(R, (t,), t), store(Y, (b, t), load(S, 0) + load(R, 1))),
        "S[t] = X[b, t]\nR[t] = t\nbarrier\nY[b, t] = S[0] + R[1]",
    )


def test_what_a_thread_does_alone_needs_none():
    """The same index of the same thread; memory that nobody writes; private memory; two reads."""
    untouched(seq(FILL, store(Y, (b, t), load(S, t))))
    untouched(seq(store(Y, (b, t), load(X, b, 0)), store(Y, (b, t), load(Y, b, t) + load(X, b, 1))))
    local = Buffer("L", "int32", (8,), "local")
    untouched(Alloc(local, seq(store(local, (t,), t), store(Y, (b, t), load(local, const(7) - t)))))
    untouched(seq(If(t < 1, store(S, (3,), t)), If(t < 1, store(Y, (b, 0), load(S, 4)))))


def test_threads_apart_in_tiles():
    """`8*i + 2*t + j` is of thread `t`, whatever `i` is."""
    big, j = Buffer("B", "int32", (64,), "shared"), Var("j")
    place = i * 16 + t * 2 + j
    body = loop(i, 4, loop(j, 2, seq(store(big, (place,), t), store(big, (place,), load(big, place) + 1))))
    one = Alloc(big, body)
    untouched(one)
    other = i * 16 + t * 2 + j + 1
    shifted = loop(i, 3, loop(j, 2, seq(store(big, (place,), t), store(big, (other,), load(big, place)))))
    assert count(place_barriers(kernel(Alloc(big, shifted)), Bounds({})), Barrier) > 0


def test_threads_apart_in_fused_axes_of_symbolic_extents():
    """The row and column that a number is taken apart into are of that number's thread."""
    n, m, v = Var("n"), Var("m"), Var("v")
    flat, deep = Buffer("F", "int32", (n, m)), Buffer("D", "int32", (4, n, m))
    x = b * 32 + t * 4 + v

    def sums(buffer, *place, read=None, kind=LoopKind.VECTORIZED):
        add = store(buffer, place, load(buffer, *(read or place)) + load(X, b, k))
        update = seq(store(buffer, place, const(0)), loop(k, 4, If(load(X, t, k) > 0, add)))
        return loop(i, 2, loop(v, 4, update, kind))

    untouched(sums(flat, x // m, x % m))
    untouched(sums(deep, x // (n * m), x // m % n, x % m))
    untouched(sums(deep, b, x // m, x % m))
    for place, read in (
        ((x // m, x % n), None),
        ((x // n, x % m), None),
        ((x // m, (x + 1) % m), None),
        ((x // (i + 1), x % (i + 1)), None),
        ((x // m, x % m), ((x + 1) // m, (x + 1) % m)),
    ):
        body = sums(flat, *place, read=read, kind=LoopKind.SERIAL)
        assert count(place_barriers(kernel(body), Bounds({})), Barrier) > 0
    with pytest.raises(ScheduleError, match="do not vectorize the loop"):
        place_barriers(kernel(sums(flat, x // m, x % n)), Bounds({}))


def test_global_memory_that_other_threads_wrote():
    placed(
        seq(store(Y, (b, t), t), store(Y, (b + 4, t), load(Y, b, const(7) - t))),
        "Y[b, t] = t\nbarrier\nY[b + 4, t] = Y[b, 7 - t]",
    )


def test_iterations_of_a_loop_follow_each_other():
    """What the last iteration reads the next one overwrites: a barrier at the beginning."""
    placed(
        loop(k, 4, seq(FILL, USE)),
        """
        for k in 0..4:
          barrier
          S[t] = X[b, t]
          barrier
          Y[b, t] = S[7 - t]
        """,
    )


def test_iterations_that_touch_other_elements_do_not_wait():
    rows = Buffer("W", "int32", (4, 8), "shared")
    body = loop(k, 4, seq(store(rows, (k, t), t), store(Y, (b, t), load(rows, k, const(7) - t))))
    lines = format_stmt(place_barriers(kernel(Alloc(rows, body)), Bounds({}))).splitlines()
    assert sum(line.strip() == "barrier" for line in lines) == 1


def test_a_barrier_for_a_loop_stands_before_it():
    placed(
        seq(FILL, loop(i, 8, store(Y, (b, t), load(S, i)))),
        """
        S[t] = X[b, t]
        barrier
        for i in 0..8:
          Y[b, t] = S[i]
        """,
    )


def test_a_loop_that_begins_with_a_barrier_needs_none_before_it():
    placed(
        loop(i, 3, seq(loop(k, 4, seq(FILL, USE)), store(Y, (b, t), load(S, 0)))),
        """
        for i in 0..3:
          for k in 0..4:
            barrier
            S[t] = X[b, t]
            barrier
            Y[b, t] = S[7 - t]
          Y[b, t] = S[0]
        """,
    )


def test_loops_are_looked_at_a_few_times_each(monkeypatch):
    """However deep they nest: twice as often for each loop around would be a million times here."""
    visits = 0
    look = barriers._Placer.statement

    def counted(placer, stmt, before):
        nonlocal visits
        visits += 1
        assert visits < 1000
        return look(placer, stmt, before)

    monkeypatch.setattr(barriers._Placer, "statement", counted)
    for inside, outside in ((None, None), (t < 4, None), (None, t < 4)):
        visits, body = 0, seq(FILL, USE) if inside is None else If(inside, seq(FILL, USE))
        for depth in range(20):
            body = loop(Var(f"k{depth}"), 2, body)
        body = body if outside is None else If(outside, body)
        assert count(place_barriers(kernel(body), Bounds({})), Barrier) == 2


def test_a_loop_that_may_not_run_is_no_barrier():
    """What is before it and what follows meet where it has no iteration."""
    n, x, y = Var("n"), Buffer("X", "int32", (8,)), Buffer("Y", "int32", (8,))
    middle = seq(store(R, (t,), t), store(y, (t,), load(R, const(7) - t)))
    body = seq(
        store(S, (t,), load(x, t)),
        loop(k, n // 4, middle),
        store(y, (t,), load(S, const(7) - t)),
    )
    made = place_barriers(For(t, 8, LoopKind.THREAD_X, Alloc(S, Alloc(R, body))), Bounds({n: (1, None)}))
    nest = LoopNest("f", (x, y), (n,), made, (1,))
    for size in (3, 4, 9):
        run_nest(nest, [np.arange(8, dtype=np.int32), np.zeros(8, np.int32)], [size], check_races=True)
    assert count(made, Barrier) == 3
    placed(
        seq(FILL, loop(k, 2, seq(store(R, (t,), t), store(Y, (b, t), load(R, const(7) - t)))), USE),
        """
        S[t] = X[b, t]
        for k in 0..2:
          barrier
          R[t] = t
          barrier
          Y[b, t] = R[7 - t]
        Y[b, t] = S[7 - t]
        """,
    )


def test_conditions_on_which_all_threads_agree():
    placed(
        seq(If(b < 2, FILL, store(S, (t,), t)), If(b < 1, USE)),
        """
        if b < 2:
          S[t] = X[b, t]
        else:
          S[t] = t
        if b < 1:
          barrier
          Y[b, t] = S[7 - t]
        """,
    )


def test_no_barrier_stands_where_only_some_threads_come_by():
    """The condition moves inwards instead."""
    placed(
        seq(If(t < 4, loop(k, 2, seq(FILL, USE)))),
        """
        for k in 0..2:
          barrier
          if t < 4:
            S[t] = X[b, t]
          barrier
          if t < 4:
            Y[b, t] = S[7 - t]
        """,
    )
    placed(
        If(t < 4, If(t > 1, loop(k, 2, seq(FILL, USE)))),
        """
        for k in 0..2:
          barrier
          if t < 4 and t > 1:
            S[t] = X[b, t]
          barrier
          if t < 4 and t > 1:
            Y[b, t] = S[7 - t]
        """,
    )
    with pytest.raises(ScheduleError, match="threads would have to meet where some do not come by"):
        place_barriers(kernel(loop(k, t + 1, seq(FILL, USE))), Bounds({}))


def test_values_are_computed_and_stored_without_a_barrier_between():
    x = Var("x")
    placed(
        seq(FILL, Let(x, load(S, const(7) - t), If(t < 4, store(R, (t,), x)))),
        """
        S[t] = X[b, t]
        barrier
        let x: int32 = S[7 - t]
        if t < 4:
          R[t] = x
        """,
    )


def test_one_thread_waits_for_nobody():
    body = seq(FILL, USE)
    blocks = For(b, 4, LoopKind.BLOCK_X, body)
    assert place_barriers(blocks, Bounds({})) is blocks


def test_guards_stay_where_a_barrier_is():
    """Neither moves a condition over a barrier nor is a tile written twice that holds one."""
    n, body = Var("n"), seq(If(b * 8 + k < 29, FILL), Barrier(), If(b * 8 + k < 29, USE))
    tile = loop(k, 8, body)
    bounds = Bounds({b: (0, 3), t: (0, 7), n: (1, None)})
    assert simplify_guards(tile, bounds) is tile
    free = loop(k, 8, If(b * 8 + k < 29, FILL))
    assert count(simplify_guards(free, bounds), For) == 2


def test_tiles_are_not_written_twice_where_threads_differ():
    """But for vectors: both versions take their time."""
    bounds = Bounds({b: (0, 3), t: (0, 7)})
    tile = loop(k, 4, If(t * 4 + k < 29, store(Y, (0, t), k)))
    assert count(simplify_guards(tile, bounds), For) == 2
    assert simplify_guards(tile, bounds, varying={t}) is tile
    vector = loop(k, 4, If(t * 4 + k < 29, store(Y, (0, k), t)), LoopKind.VECTORIZED)
    assert count(simplify_guards(vector, bounds, varying={t}), For) == 2
