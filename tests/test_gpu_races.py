"""Kernels in the interpreter: threads of a block share memory, and are found to race without a barrier."""

import numpy as np
import pytest

from ansor import te
from ansor.errors import RunError
from ansor.ir.interp import run_nest
from ansor.ir.kernel_form import map_kernels
from ansor.ir.nest import Alloc, Barrier, Buffer, For, If, LoopKind, LoopNest, Store, seq
from ansor.te.expr import Load, Var, const
from tests.gpu_schedules import (
    bind_all,
    check_schedule,
    count,
    reduce_together,
    softmax,
    tiled_matmul,
    without_barrier,
)
from tests.program_laws import Case

BLOCKS, THREADS = 5, 8
b, t, u, k, i = Var("b"), Var("t"), Var("u"), Var("k"), Var("i")
X, Y = Buffer("X", "int32", (BLOCKS, THREADS)), Buffer("Y", "int32", (BLOCKS, THREADS))
S = Buffer("S", "int32", (THREADS,), "shared")
VALUES = np.random.default_rng(0).integers(-9, 9, (BLOCKS, THREADS)).astype(np.int32)


def load(buffer, *indices):
    return Load(buffer, tuple(const(x) if isinstance(x, int) else x for x in indices), buffer.dtype)


def store(buffer, indices, value):
    return Store(buffer, tuple(const(x) if isinstance(x, int) else x for x in indices), value)


def run(body, *, shared=S, check_races=True):
    """What a kernel with this body computes of `VALUES`."""
    if shared is not None:
        body = Alloc(shared, body)
    kernel = For(b, BLOCKS, LoopKind.BLOCK_X, For(t, THREADS, LoopKind.THREAD_X, body))
    found = np.zeros_like(VALUES)
    run_nest(LoopNest("f", (X, Y), (), kernel, (1,)), [VALUES, found], check_races=check_races)
    return found


FILL = store(S, (t,), load(X, b, t))
BACK = store(Y, (b, t), load(S, const(THREADS - 1) - t))


def test_shared_memory_is_there_once_for_each_block():
    np.testing.assert_array_equal(run(seq(FILL, Barrier(), BACK)), VALUES[:, ::-1])


@pytest.mark.parametrize("kind", [LoopKind.SERIAL, LoopKind.UNROLLED])
def test_it_is_the_same_memory_in_every_iteration(kind):
    """Threads meet in each of them."""
    add = store(Y, (b, t), load(Y, b, t) + load(S, const(THREADS - 1) - t))
    right = seq(store(Y, (b, t), const(0)), For(k, 3, kind, Alloc(S, seq(Barrier(), FILL, Barrier(), add))))
    np.testing.assert_array_equal(run(right, shared=None), 3 * VALUES[:, ::-1])
    hasty = seq(store(Y, (b, t), const(0)), For(k, 3, kind, Alloc(S, seq(FILL, Barrier(), add))))
    with pytest.raises(RunError, match="touch one element of 'S' with no barrier between"):
        run(hasty, shared=None)


def test_memory_is_uninitialised_in_every_iteration():
    body = For(k, 2, LoopKind.SERIAL, Alloc(S, seq(If(k < 1, FILL), Barrier(), BACK)))
    with pytest.raises(RunError, match="is read before it is written"):
        run(body, shared=None)


def test_a_missing_barrier_is_a_race():
    """The result is right all the same, as threads take turns; the check finds it."""
    np.testing.assert_array_equal(run(seq(FILL, BACK), check_races=False), VALUES[:, ::-1])
    with pytest.raises(
        RunError,
        match=r"two iterations of the threadIdx.x loop over 't' touch one element of 'S' with no barrier "
        "between, and one of them writes it, at `S.7 - t.`",
    ):
        run(seq(FILL, BACK))


def test_threads_of_several_indices():
    v, shared = Var("v"), Buffer("S", "int32", (2, 4), "shared")
    x, y = Buffer("X", "int32", (3, 2, 4)), Buffer("Y", "int32", (3, 2, 4))
    fill = store(shared, (u, v), load(x, b, u, v))
    values = np.arange(24, dtype=np.int32).reshape(3, 2, 4)

    def result(index, *between):
        body = Alloc(shared, seq(fill, *between, store(y, (b, u, v), load(shared, *index))))
        threads = For(u, 2, LoopKind.THREAD_Y, For(v, 4, LoopKind.THREAD_X, body))
        found = np.zeros_like(values)
        nest = LoopNest("f", (x, y), (), For(b, 3, LoopKind.BLOCK_X, threads), (1,))
        run_nest(nest, [values, found], check_races=True)
        return found

    flipped = (const(1) - u, const(3) - v)
    np.testing.assert_array_equal(result(flipped, Barrier()), values[:, ::-1, ::-1])
    for index in (flipped, (const(1) - u, v), (u, const(3) - v)):
        with pytest.raises(RunError, match="touch one element of 'S'"):
            result(index)
    np.testing.assert_array_equal(result((u, v)), values)


def test_global_memory_is_watched_too():
    first, second = store(Y, (b, t), t), store(Y, (b, t), load(Y, b, const(THREADS - 1) - t))
    with pytest.raises(RunError, match="touch one element of 'Y'"):
        run(seq(first, Barrier(), second))
    last = const(THREADS - 1)
    np.testing.assert_array_equal(
        run(seq(first, Barrier(), If(t < 1, store(Y, (b, t), load(Y, b, last)))))[:, 0], THREADS - 1
    )
    with pytest.raises(RunError, match="touch one element of 'Y'"):
        run(seq(first, If(t < 1, store(Y, (b, t), load(Y, b, last)))))


def test_blocks_race_whatever_barriers_there_are():
    other = store(Y, (const(BLOCKS - 1) - b, t), t)
    with pytest.raises(
        RunError, match=r"two iterations of the blockIdx.x loop over 'b' touch one element of 'Y'"
    ):
        run(seq(store(Y, (b, t), t), Barrier(), other))


def test_all_threads_of_a_block_come_by_a_barrier():
    """Or none of them: blocks need not agree."""
    right = seq(FILL, If(b < 3, seq(Barrier(), BACK), seq(Barrier(), BACK)))
    np.testing.assert_array_equal(run(right), VALUES[:, ::-1])
    with pytest.raises(RunError, match="3 of the 8 threads of a block come by a barrier, and the rest not"):
        run(seq(FILL, If(t < 3, Barrier()), BACK))
    with pytest.raises(RunError, match="7 of the 8 threads of a block come by a barrier"):
        run(seq(FILL, For(k, t + 1, LoopKind.SERIAL, Barrier()), BACK))


def test_a_barrier_of_one_block_is_none_of_another():
    """The blocks that do not come by it race as before."""
    with pytest.raises(RunError, match="touch one element of 'S'"):
        run(seq(FILL, If(b < 3, Barrier()), BACK))


def test_barriers_of_many_iterations():
    rows = Buffer("W", "int32", (THREADS,), "shared")
    step = seq(
        Barrier(), store(S, (t,), load(rows, (t + 1) % THREADS)), Barrier(), store(rows, (t,), load(S, t))
    )
    body = seq(
        store(rows, (t,), load(X, b, t)), For(k, 50, LoopKind.SERIAL, step), store(Y, (b, t), load(rows, t))
    )
    np.testing.assert_array_equal(run(Alloc(rows, body)), np.roll(VALUES, -50, axis=1))


def test_kernels_follow_each_other():
    """What one kernel wrote another reads without a barrier."""
    scratch, c, v = Buffer("T", "int32", (BLOCKS, THREADS)), Var("c"), Var("v")
    first = For(
        b, BLOCKS, LoopKind.BLOCK_X, For(t, THREADS, LoopKind.THREAD_X, store(scratch, (b, t), load(X, b, t)))
    )
    back = store(Y, (c, v), load(scratch, const(BLOCKS - 1) - c, const(THREADS - 1) - v))
    second = For(c, BLOCKS, LoopKind.BLOCK_X, For(v, THREADS, LoopKind.THREAD_X, back))
    nest = LoopNest("f", (X, Y), (), Alloc(scratch, seq(first, second)), (1,))
    found = np.zeros_like(VALUES)
    run_nest(nest, [VALUES, found], check_races=True)
    np.testing.assert_array_equal(found, VALUES[::-1, ::-1])


# -- races planted in real programs ------------------------------------------------------------------------


def softmax_schedule():
    _, high, total, y = softmax(6, 21)
    s = te.create_schedule(y)
    i, j = s[y].op.axis
    outer, row = s[y].split(i, factor=4)
    _, thread = s[y].split(j, factor=8)
    for loop, index in ((outer, "blockIdx.x"), (row, "threadIdx.y"), (thread, "threadIdx.x")):
        s[y].bind(loop, te.thread_axis(index))
    for stage in (high, total):
        s[stage].compute_at(s[y], row)
        reduce_together(s, stage, 8)
    return s


def row_schedule():
    """Several rows one after another in one block, in the same shared memory."""
    _, high, total, y = softmax(5, 12)
    s = te.create_schedule(y)
    reduce_together(s, high, 4)
    reduce_together(s, total, 4)
    bind_all(s, y, 8)
    return s


@pytest.mark.parametrize(
    "make",
    [
        lambda: tiled_matmul((20, 24, 12), (2, 3, 2), (2, 4, 1), 4),
        lambda: tiled_matmul((9, 7, 11), (1, 3, 2), (3, 2, 1), 3, vector=2, unroll=64),
        softmax_schedule,
        row_schedule,
    ],
    ids=["matmul", "uneven matmul", "softmax", "rows"],
)
def test_every_barrier_of_a_program_is_needed(make):
    s = make()
    nest = check_schedule(s)
    barriers = count(nest.body, Barrier)
    assert barriers >= 2
    case = Case.of(s.state)
    for number in range(barriers):
        planted = map_kernels(nest, lambda kernel: kernel)
        body = without_barrier(planted.body, number)
        hasty = LoopNest(nest.name, nest.params, nest.sizes, body, nest.outputs)
        assert count(hasty.body, Barrier) == barriers - 1
        case.check_interpreted(hasty)
        with pytest.raises(RunError, match="with no barrier between"):
            case.check_interpreted(hasty, check_races=True)
