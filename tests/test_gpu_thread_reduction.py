"""Reductions across threads: any combiner, any number of threads, any place."""

from textwrap import dedent

import pytest

from ansor import te
from ansor.errors import ScheduleError
from ansor.ir.nest import Alloc, Barrier
from tests.gpu_schedules import (
    argmax,
    bind_all,
    check_schedule,
    count,
    kernels,
    reduce_together,
    softmax,
    text_of,
)

BLOCK, THREAD = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")


def row_sums(n, m):
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis((0, m), name="k")
    s = te.create_schedule(te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="S"))
    (stage,) = (op for op in s.dag.ops if op.name == "S")
    return stage.output(0), s


def test_a_sum_of_rows():
    S, s = row_sums(5, 14)
    reduce_together(s, S, 6)
    s[S].bind(s[S].op.axis[0], BLOCK)
    assert text_of(check_schedule(s)) == dedent(
        """\
        blockIdx.x i in 0..5:
          threadIdx.x k.1 in 0..6:
            allocate S.red[6] float32 shared
            allocate S.part[] float32 local
            S.part[] = 0.0
            for k.0 in 0..3:
              if k.0*6 + k.1 < 14:
                S.part[] = S.part[] + X[i, k.0*6 + k.1]
            S.red[k.1] = S.part[]
            barrier
            if k.1 < 2:
              S.red[k.1] = S.red[k.1] + S.red[k.1 + 4]
            barrier
            if k.1 < 2:
              S.red[k.1] = S.red[k.1] + S.red[k.1 + 2]
            barrier
            if k.1 < 1:
              S.red[k.1] = S.red[k.1] + S.red[k.1 + 1]
            if k.1 == 0:
              S[i] = S.red[0]"""
    )


@pytest.mark.parametrize("threads", [2, 3, 4, 5, 7, 8, 17, 32, 64, 100])
def test_any_number_of_threads(threads):
    S, s = row_sums(3, 64)
    reduce_together(s, S, threads)
    s[S].bind(s[S].op.axis[0], BLOCK)
    barriers, steps = count(check_schedule(s).body, Barrier), (threads - 1).bit_length()
    assert barriers == (1 if threads == 3 else steps)  # of three, one thread takes both steps


def test_several_thread_indices_reduce_together():
    x = te.placeholder((4, 6, 10), name="X")
    i, j = te.reduce_axis((0, 6), name="i"), te.reduce_axis((0, 10), name="j")
    S = te.compute((4,), lambda q: te.max(x[q, i, j], axis=[i, j]), name="S")
    s = te.create_schedule(S)
    q, (i, j) = S.op.axis[0], S.op.reduce_axis
    _, inner = s[S].split(j, factor=4)
    s[S].bind(q, BLOCK)
    s[S].bind(i, te.thread_axis("threadIdx.y"))
    s[S].bind(inner, THREAD)
    nest = check_schedule(s)
    text = text_of(nest)
    assert "S.red[i*4 + j.1] = S.part[]" in text
    assert "if i < 2:\n        S.red[i*4 + j.1] = max(S.red[i*4 + j.1], S.red[i*4 + j.1 + 16])" in text
    assert "if i == 0 and j.1 == 0:" in text
    assert "if i < 1 and j.1 < 2:" in text
    assert count(nest.body, Barrier) == 5  # for five steps: who takes the last one stores


@pytest.mark.parametrize("place", ["outside", "inside"])
def test_threads_of_other_indices_reduce_each_their_own(place):
    """Rows in threadIdx.y, inside of the reduction or outside of it."""
    S, s = row_sums(11, 30)
    serial = reduce_together(s, S, 8)
    thread = s[S].leaf_iter_vars[-1]
    outer, inner = s[S].split(s[S].op.axis[0], factor=4)
    s[S].bind(outer, BLOCK)
    s[S].bind(inner, te.thread_axis("threadIdx.y"))
    s[S].reorder(*((outer, inner, serial, thread) if place == "outside" else (outer, serial, inner, thread)))
    text = text_of(check_schedule(s))
    assert "allocate S.red[4, 8] float32 shared" in text
    assert "S.red[i.1, k.1] = S.part[]" in text


def test_elements_inside_of_the_reduction_are_reduced_one_after_another():
    """Each thread has partial results of all of them; they share the memory in which threads meet."""
    x = te.placeholder((6, 40), name="X")
    k = te.reduce_axis((0, 40), name="k")
    S = te.compute((6,), lambda i: te.sum(x[i, k], axis=k), name="S")
    s = te.create_schedule(S)
    serial, thread = s[S].split(S.op.reduce_axis[0], factor=16)
    outer, inner = s[S].split(S.op.axis[0], factor=4)
    s[S].reorder(outer, serial, thread, inner)
    s[S].bind(outer, BLOCK)
    s[S].bind(thread, THREAD)
    nest = check_schedule(s)
    text = text_of(nest)
    assert "allocate S.part[4] float32 local" in text
    assert "allocate S.red[16] float32 shared" in text
    assert count(nest.body, Barrier) == 5


@pytest.mark.parametrize("kind", ["vthread", "vectorize", "unroll"])
def test_other_loops_around_the_reduction(kind):
    """Virtual threads meet each in memory of their own; in a vector loop none can meet, so it is serial."""
    S, s = row_sums(8, 20)
    reduce_together(s, S, 8)
    outer, inner = s[S].split(s[S].op.axis[0], factor=4)
    s[S].bind(outer, BLOCK)
    if kind == "vthread":
        s[S].bind(inner, te.thread_axis(kind))
    else:
        getattr(s[S], kind)(inner)
    text = text_of(check_schedule(s))
    shape, loop = {"vthread": ("4, 8", "unroll"), "vectorize": ("8", "for"), "unroll": ("8", "unroll")}[kind]
    assert f"allocate S.red[{shape}] float32 shared" in text
    assert f"{loop} i.1 in 0..4:" in text


def test_argmax():
    """A reduction of two values: both are combined before either is stored."""
    _, place, value = argmax(4, 25)
    s = te.create_schedule([place, value])
    reduce_together(s, place, 8)
    s[place].bind(s[place].op.axis[0], BLOCK)
    nest = check_schedule(s)
    text = text_of(nest)
    assert "Best.v0.red[k.1] = Best.v0.red.next" in text
    assert text.count("if k.1 == 0:") == 2
    assert count(nest.body, Barrier) == 3


def test_a_reducer_of_ones_own_with_a_condition():
    x = te.placeholder((3, 33), "int32", name="X")
    k = te.reduce_axis((0, 33), name="k")
    either = te.comm_reducer(lambda p, q: p | q, lambda dtype: te.const(False, "bool"), name="any")
    S = te.compute((3,), lambda i: either(x[i, k] > 3, axis=k, where=k > 1), name="S")
    s = te.create_schedule(S)
    reduce_together(s, S, 8)
    s[S].bind(S.op.axis[0], BLOCK)
    check_schedule(s)


def test_a_scalar():
    """No loop is left to bind to blocks: one block."""
    x = te.placeholder((50,), name="X")
    k = te.reduce_axis((0, 50), name="k")
    S = te.compute((), lambda: te.sum(x[k], axis=k), name="S")
    s = te.create_schedule(S)
    reduce_together(s, S, 16)
    text = text_of(check_schedule(s))
    assert text.startswith("threadIdx.x k.1 in 0..16:")
    assert "if k.1 == 0:\n    S[] = S.red[0]" in text


def test_one_thread_is_no_reduction_across_threads():
    S, s = row_sums(5, 14)
    reduce_together(s, S, 1)
    s[S].bind(s[S].op.axis[0], BLOCK)
    assert ".red" not in text_of(check_schedule(s))


# -- softmax -----------------------------------------------------------------------------------------------


def test_softmax_with_its_reductions_at_root():
    """Three kernels, which pass rows on in global memory."""
    _, high, total, y = softmax(6, 21)
    s = te.create_schedule(y)
    for stage in (high, total):
        reduce_together(s, stage, 8)
        s[stage].bind(s[stage].op.axis[0], BLOCK)
    bind_all(s, y, 16)
    text = text_of(check_schedule(s))
    assert text.startswith("allocate Total[6] float32 global\nallocate High[6] float32 global\n")
    assert sum(line.startswith("blockIdx.x") for line in text.splitlines()) == 3


def test_softmax_in_one_kernel():
    """A row per block: its greatest and its sum are in shared memory, for all threads."""
    _, high, total, y = softmax(6, 21)
    s = te.create_schedule(y)
    i, j = s[y].op.axis
    _, thread = s[y].split(j, factor=8)
    s[y].bind(i, BLOCK)
    s[y].bind(thread, THREAD)
    for stage in (high, total):
        s[stage].compute_at(s[y], i)
        reduce_together(s, stage, 8)
    text = text_of(check_schedule(s))
    assert "allocate High[1] float32 shared" in text
    assert "allocate Total[1] float32 shared" in text


def test_softmax_of_several_rows_per_block():
    """A row for each thread in y, and each of these has its place in shared memory."""
    _, high, total, y = softmax(6, 21)
    s = te.create_schedule(y)
    i, j = s[y].op.axis
    outer, row = s[y].split(i, factor=4)
    _, thread = s[y].split(j, factor=8)
    s[y].bind(outer, BLOCK)
    s[y].bind(row, te.thread_axis("threadIdx.y"))
    s[y].bind(thread, THREAD)
    for stage in (high, total):
        s[stage].compute_at(s[y], row)
        reduce_together(s, stage, 8)
    text = text_of(check_schedule(s))
    assert "allocate High[4, 1] float32 shared" in text
    assert "allocate High.red[4, 8] float32 shared" in text
    assert "if i.0*4 + i.1 < 6 and k1.1 == 0:\n        High[i.1, 0] = High.red[i.1, 0]" in text


def test_what_is_computed_inside_of_the_reduction():
    """By each thread for itself, or by all of them together for all."""
    x = te.placeholder((4, 32), name="X")
    b = te.compute((4, 32), lambda i, j: x[i, j] * 2.0, name="B")
    k = te.reduce_axis((0, 32), name="k")
    S = te.compute((4,), lambda i: te.sum(b[i, k], axis=k), name="S")
    for place in ("serial", "thread"):
        s = te.create_schedule(S)
        serial = reduce_together(s, S, 8)
        s[S].bind(S.op.axis[0], BLOCK)
        s[b].compute_at(s[S], serial if place == "serial" else s[S].leaf_iter_vars[-1])
        if place == "serial":
            s[b].bind(s[b].op.axis[1], THREAD)
        nest = check_schedule(s)
        scope = "shared" if place == "serial" else "local"
        assert f"float32 {scope}" in next(line for line in str(nest).splitlines() if "allocate B[" in line)
        assert count(nest.body, Alloc) == 3


def test_a_factored_reduction():
    """rfactor, then threads that reduce what each of them has computed."""
    S, s = row_sums(5, 30)
    _, inner = s[S].split(s[S].op.reduce_axis[0], factor=8)
    part = s.rfactor(S, inner)
    s[S].bind(s[S].op.reduce_axis[0], THREAD)
    s[S].bind(s[S].op.axis[0], BLOCK)
    s[part].compute_at(s[S], s[S].op.reduce_axis[0])
    text = text_of(check_schedule(s))
    assert "float32 local" in text
    assert ".red[8] float32 shared" in text


def test_symbolic_extents():
    n, m = te.var("n"), te.var("m")
    x = te.placeholder((n, m), name="X")
    k = te.reduce_axis((0, m), name="k")
    S = te.compute((n,), lambda i: te.sum(x[i, k], axis=k), name="S")
    s = te.create_schedule(S)
    serial = reduce_together(s, S, 8)
    s[S].bind(S.op.axis[0], BLOCK)
    text = text_of(kernels(s))
    assert "blockIdx.x i in 0..n:" in text
    assert "for k.0 in 0..(m + 7)//8:" in text
    s[S].reorder(serial, S.op.axis[0])
    with pytest.raises(
        ScheduleError, match="stage 'S' reduces across threads, and its loop 'i' has the symbolic"
    ):
        kernels(s)
