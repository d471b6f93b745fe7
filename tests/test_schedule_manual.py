"""Schedules by hand: each call records the step that a search would, and gives handles to go on with."""

from types import SimpleNamespace

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import AnsorError, DefinitionError, ScheduleError
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Loop, create_schedule
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State


def program():
    """`D = max((A*2) @ B, 0)`; stages A, P, B, C, D."""
    A = te.placeholder((12, 8), name="A")
    B = te.placeholder((8, 6), name="B")
    P = te.compute((12, 8), lambda i, j: A[i, j] * 2.0, name="P")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((12, 6), lambda i, j: te.sum(P[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((12, 6), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    return SimpleNamespace(A=A, B=B, P=P, C=C, D=D, k=k, s=te.create_schedule(D))


def names(schedule, tensor):
    return [loop.name for loop in schedule[tensor].leaf_iter_vars]


def records(schedule):
    return [step.to_json() for step in schedule.state.steps]


def test_each_call_records_one_step():
    p = program()
    s, D, C = p.s, p.D, p.C
    outer, inner = s[D].split(D.op.axis[0], factor=4)
    fused = s[D].fuse(inner, D.op.axis[1])
    s[D].parallel(outer)
    s[D].vectorize(fused)
    s[C].compute_at(s[D], outer)
    s[p.P].compute_inline()
    s[C].reorder(p.k, C.op.axis[0])
    s[C].unroll(p.k)
    s[C].pragma(p.k, "auto_unroll_max_step", 16)
    s[C].set_scope("local")
    s[C].storage_align(C.op.axis[0], 8, 1)

    assert records(s) == [
        ["SP", 4, 0, 12, [4], 1],
        ["FU", 4, [1, 2]],
        ["AN", 4, 0, 3],
        ["AN", 4, 1, 2],
        ["CA", 3, 4, 0],
        ["CI", 1],
        ["RE", 3, [2, 1, 0]],
        ["AN", 3, 0, 1],
        ["PR", 3, 0, "auto_unroll_max_step$16"],
        ["SCOPE", 3, "local"],
        ["SA", 3, 2, 8, 1],
    ]
    assert State.replay(s.dag, records(s)) == s.state


def test_the_state_has_the_same_steps_as_methods():
    p = program()
    outer, inner = p.s[p.D].split(p.D.op.axis[0], nparts=3)
    p.s[p.D].unroll(inner)
    p.s[p.C].compute_at(p.s[p.D], outer)
    state = (
        State.initial(p.s.dag)
        .split(4, 0, [3], inner_to_outer=False)
        .annotate(4, 1, Annotation.UNROLL)
        .compute_at(3, 4, 0)
    )

    assert [step.to_json() for step in state.steps] == records(p.s)
    assert str(state.with_bounds()) == str(p.s.state.with_bounds())


def test_the_loops_that_come_back_are_the_new_ones():
    p = program()
    i, j = p.D.op.axis
    outer, inner = p.s[p.D].split(i, factor=5)
    assert (outer, inner) == (Loop("i.0", p.D.op), Loop("i.1", p.D.op))
    assert [str(loop) for loop in (outer, inner)] == ["D.i.0", "D.i.1"]
    assert names(p.s, p.D) == ["i.0", "i.1", "j"]
    fused = p.s[p.D].fuse(inner, j)
    assert names(p.s, p.D) == ["i.0", fused.name]
    assert len(p.s[p.D].split(fused, nparts=[2, 3])) == 3
    assert names(p.s, p.D) == ["i.0", "i.1@j@.0", "i.1@j@.1", "i.1@j@.2"]


def test_reorder_moves_the_named_loops_among_their_own_places():
    p = program()
    i, j = p.C.op.axis
    p.s[p.C].reorder(p.k, i)
    assert names(p.s, p.C) == ["k", "j", "i"]
    p.s[p.C].reorder(j)
    assert names(p.s, p.C) == ["k", "j", "i"]


def test_tile_returns_outer_and_inner_loops():
    p = program()
    tiles = p.s[p.D].tile(*p.D.op.axis, 4, 3)
    assert [loop.name for loop in tiles] == names(p.s, p.D) == ["i.0", "j.0", "i.1", "j.1"]


def test_bind_takes_a_thread_axis_or_its_name():
    p = program()
    i, j = p.D.op.axis
    p.s[p.D].bind(i, te.thread_axis("blockIdx.x"))
    p.s[p.D].bind(j, te.thread_axis((0, 6), "threadIdx.x"))
    p.s[p.C].bind(p.k, "threadIdx.y")
    assert records(p.s) == [["AN", 4, 0, 5], ["AN", 4, 1, 6], ["AN", 3, 2, 8]]


def test_bind_knows_how_many_threads_a_split_makes_where_the_stage_is_placed():
    p = program()
    _, inner = p.s[p.C].split(p.C.op.axis[1], factor=3)
    p.s[p.C].compute_at(p.s[p.D], p.D.op.axis[0])
    with pytest.raises(ScheduleError, match=r"'j\.1' has extent 3, but threadIdx\.x was given extent 5"):
        p.s[p.C].bind(inner, te.thread_axis(5, "threadIdx.x"))
    p.s[p.C].bind(inner, te.thread_axis(3, "threadIdx.x"))


def test_handles_of_a_computation_survive_cache_write():
    """Tensor and axes of C now denote the copy; the computation is the tensor that comes back."""
    p = program()
    local = p.s.cache_write(p.C, "local")
    assert local.name == "C.local"
    assert names(p.s, local) == ["i_c", "j_c", "k"]
    assert names(p.s, p.C) == ["i", "j"]
    outer, _ = p.s[p.C].split(p.C.op.axis[0], factor=4)
    p.s[local].compute_at(p.s[p.C], outer)
    p.s[local].unroll(p.s[local].op.reduce_axis[0])
    lower(p.s)


def test_cache_read_copies_for_the_readers_named():
    p = program()
    copy = p.s.cache_read(p.P, "local", p.C)
    assert copy.name == "P.local"
    assert copy in p.s[p.C].op.input_tensors
    again = p.s.cache_read(copy, "global", [p.C])
    assert again.name == "P.local.global"
    assert [stage.name for stage in p.s.state.stages] == [
        "A",
        "P",
        "P.local",
        "P.local.global",
        "B",
        "C",
        "D",
    ]


@pytest.mark.parametrize(("position", "shape"), [(0, (4, 12, 6)), (1, (12, 4, 6)), (-1, (12, 6, 4))])
def test_rfactor_places_its_axis_among_the_others(position, shape):
    p = program()
    _, inner = p.s[p.C].split(p.k, factor=4)
    partial = p.s.rfactor(p.C, inner, position)
    assert partial.shape == shape
    assert names(p.s, p.C) == ["ax0", "ax1", "k_i_v"]
    p.s[p.C].parallel(p.s[p.C].op.axis[0])
    lower(p.s)


def test_unnamed_reduce_axes_are_found_by_the_axes_that_users_made():
    x = te.placeholder((8, 6, 4), name="X")
    a, b = te.reduce_axis((0, 8)), te.reduce_axis((0, 6))
    y = te.compute((4,), lambda k: te.sum(x[a, b, k], axis=[a, b]), name="Y")
    s = te.create_schedule(y)
    cached = s.cache_write(y, "local")
    outer, inner = s[cached].split(b, factor=3)
    assert (outer.name, inner.name) == ("rv_1.0", "rv_1.1")
    s[cached].reorder(outer, a)
    assert names(s, cached) == ["k_c", "rv_1.0", "rv", "rv_1.1"]
    with pytest.raises(ScheduleError, match=r"loop 'rv_1' of stage 'Y\.local' is gone"):
        s[cached].unroll(b)
    with pytest.raises(ScheduleError, match="'rv' is not an axis"):
        s[cached].unroll(te.reduce_axis((0, 6)))
    values = np.random.default_rng(0).normal(size=(8, 6, 4)).astype(np.float32)
    np.testing.assert_allclose(ansor.build(s, [x, y])(values), values.sum(axis=(0, 1)), rtol=1e-5)


def test_a_schedule_is_made_of_operations_or_tensors_one_or_several():
    p = program()
    for given in (p.D, p.D.op, [p.D], (p.D.op,)):
        assert [t.name for t in create_schedule(given).dag.tensors] == ["A", "B", "D"]
    both = ansor.create_schedule([p.C, p.D])
    assert [t.name for t in both.dag.tensors] == ["A", "B", "C", "D"]


def test_a_refused_step_leaves_the_schedule_as_it_was():
    p = program()
    p.s[p.D].parallel(p.D.op.axis[0])
    before = str(p.s)
    with pytest.raises(ScheduleError):
        p.s[p.D].split(p.D.op.axis[1], factor=0)
    assert str(p.s) == before
    assert len(p.s.state.steps) == 1


def test_explicit_unrolling_is_implied():
    """Schedules printed by others end with this pragma; it changes nothing here."""
    p = program()
    p.s[p.C].pragma(p.C.op.axis[0], "auto_unroll_max_step", 64)
    before = str(p.s)
    p.s[p.C].pragma(p.C.op.axis[0], "unroll_explicit", True)
    assert str(p.s) == before


def test_a_printed_schedule_is_its_loops():
    p = program()
    outer, _ = p.s[p.D].split(p.D.op.axis[0], factor=4)
    p.s[p.D].parallel(outer)
    p.s[p.C].compute_at(p.s[p.D], outer)
    p.s[p.P].compute_inline()

    assert str(p.s.state.with_bounds()).splitlines() == [
        "Placeholder: A, B",
        "parallel i.0 (0,3)",
        "  for i (0,4)",
        "    for j (0,6)",
        "      for k (0,8)",
        "        C = ...",
        "  for i.1 (0,4)",
        "    for j (0,6)",
        "      D = ...",
    ]


def attach_c(p):
    p.s[p.C].compute_at(p.s[p.D], p.D.op.axis[0])


def inline_p(p):
    p.s[p.P].compute_inline()


ARGUMENTS = {
    "an output is missing": (
        lambda p: [p.A, p.B],
        None,
        "the output 'D' is missing from the arguments (A, B)",
    ),
    "an input is missing": (lambda p: [p.A, p.D], None, "the input 'B' is missing from the arguments (A, D)"),
    "twice": (lambda p: [p.A, p.B, p.A, p.D], None, "the tensor 'A' is given twice"),
    "foreign": (
        lambda p: [p.A, p.B, te.compute((3,), lambda i: i, name="Z"), p.D],
        None,
        "'Z' is not a stage",
    ),
    "no list": (
        lambda p: p.D,
        None,
        "tensors in a list, found one tensor 'D'; list inputs and outputs: [A, B, D]",
    ),
    "no tensor": (lambda p: [p.A, p.B, 3, p.D], None, "the arguments are tensors, found 3"),
    "computed elsewhere": (
        lambda p: [p.A, p.B, p.C, p.D],
        attach_c,
        "'C' is an argument, but its stage is comp",
    ),
    "inlined": (lambda p: [p.A, p.B, p.P, p.D], inline_p, "'P' is an argument, but its stage is inlined"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_arguments_that_do_not_fit(case):
    arguments, change, message = ARGUMENTS[case]
    p = program()
    if change is not None:
        change(p)
    with pytest.raises(AnsorError) as caught:
        lower(p.s, arguments(p))
    assert message in str(caught.value)
    assert isinstance(caught.value, (DefinitionError, ScheduleError))


def test_an_input_that_nothing_reads_is_a_parameter_all_the_same():
    a, unused = te.placeholder((4,), name="A"), te.placeholder((3,), name="Z")
    b = te.compute((4,), lambda i: a[i] + 1.0, name="B")
    nest = lower(te.create_schedule(b), [a, unused, b])

    assert [buffer.name for buffer in nest.params] == ["A", "Z", "B"]
    assert nest.outputs == (2,)


def test_lengths_may_be_numpy_s_integers():
    a, b, c = ansor.workloads.matmul(16, 16, 16)
    s = te.create_schedule(c)
    outer, _ = s[c].split(c.op.axis[0], factor=np.int64(8))
    s[c].split(c.op.axis[1], factors=[np.int32(4), 2])
    s[c].parallel(outer)
    again = State.initial(s.state.dag).split(2, 0, [np.int64(8)])
    assert str(ansor.lower(again)) == str(ansor.lower(State.initial(s.state.dag).split(2, 0, [8])))
    left, right = np.random.default_rng(0).random((2, 16, 16), dtype=np.float32)
    np.testing.assert_allclose(ansor.build(s, [a, b, c])(left, right), left @ right, rtol=1e-5)


def test_alignments_may_be_numpy_s_integers():
    p = program()
    p.s[p.C].storage_align(p.C.op.axis[0], np.int64(8), np.int32(1))
    of_a_state = program().s.state.storage_align(3, 0, np.int64(8), np.int32(1))
    for state in (p.s.state, of_a_state):
        assert str(state.stages[3].storage_align) == "('i', 8, 1)"
