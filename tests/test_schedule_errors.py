"""Illegal steps are refused at once: the message says why, the loops are printed, the offender is marked.

The program is `D = max(C, 0)`, `C = (A*2) @ B`, with P = A*2 a stage of its own.
"""

from contextlib import suppress
from types import SimpleNamespace

import pytest

from ansor import te
from ansor.errors import AnsorError, ScheduleError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.schedule.steps import (
    AnnotationStep,
    FollowFusedSplitStep,
    FollowSplitStep,
    FuseStep,
    ReorderStep,
    RfactorStep,
    SplitStep,
)
from tests.random_choice import Chooser
from tests.random_schedules import random_state
from tests.sketches_cases import matmul, softmax


def program():
    A = te.placeholder((12, 8), name="A")
    B = te.placeholder((8, 6), name="B")
    P = te.compute((12, 8), lambda i, j: A[i, j] * 2.0, name="P")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((12, 6), lambda i, j: te.sum(P[i, k] * B[k, j], axis=k), name="C")
    D = te.compute((12, 6), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    s = te.create_schedule(D)
    return SimpleNamespace(A=A, B=B, P=P, C=C, D=D, k=k, s=s, i=D.op.axis[0], j=D.op.axis[1])


def refusal(change):
    """The message of the refusal; the schedule is as it was before the refused step."""
    p = program()
    with pytest.raises(ScheduleError) as caught:
        change(p)
    before = [step.to_json() for step in p.s.state.steps]
    assert str(State.replay(p.s.dag, before)) == str(p.s.state)
    return str(caught.value)


def offender(text):
    """The marked line, without the mark."""
    marked = [line for line in text.splitlines() if "<-- here" in line]
    assert len(marked) == 1, text
    return marked[0].removesuffix("   <-- here").strip()


def split_then_vectorize(p):
    p.s[p.D].split(p.i, 4)
    p.s[p.D].vectorize(p.i)


def fuse_then_split(p):
    p.s[p.D].fuse(p.i, p.j)
    p.s[p.D].split(p.j, 2)


def split_twice(p):
    outer, _ = p.s[p.D].split(p.i, 4)
    p.s[p.D].split(outer, 2)
    p.s[p.D].unroll(outer)


GONE = {
    "split away": (
        split_then_vectorize,
        "'i' of stage 'D' is gone: it was split into 'i.0', 'i.1'",
        "i.0 (0,3)",
    ),
    "fused away": (fuse_then_split, "'j' of stage 'D' is gone: it was fused into 'i@j@'", "i@j@ (0,72)"),
    "handle split away": (split_twice, "'i.0' of stage 'D' is gone: it was split", "i.0.0 (0,2)"),
}


@pytest.mark.parametrize("case", GONE)
def test_a_loop_that_is_gone(case):
    change, message, where = GONE[case]
    text = refusal(change)

    assert message in text
    assert where in offender(text)


def after_parallel(action):
    def change(p):
        p.s[p.D].parallel(p.i)
        action(p)

    return change


def non_adjacent(p):
    outer, _ = p.s[p.D].split(p.i, 4)
    p.s[p.D].fuse(outer, p.j)


def fuse_around_a_stage(p):
    p.s[p.C].compute_at(p.s[p.D], p.i)
    p.s[p.D].fuse(p.i, p.j)


def bad_split(**lengths):
    return lambda p: p.s[p.D].split(p.i, **lengths)


LOOPS = {
    "reorder names a loop twice": (lambda p: p.s[p.D].reorder(p.i, p.i), "named twice in i, i", "for i "),
    "reorder repeats a position": (
        lambda p: p.s.apply(ReorderStep(4, (0, 0))),
        "not a permutation",
        "for i ",
    ),
    "reorder leaves one out": (lambda p: p.s.apply(ReorderStep(4, (0,))), "each of 0..1 once", "for j "),
    "vectorize a reduction": (lambda p: p.s[p.C].vectorize(p.k), "it runs over a reduction", "for k "),
    "parallelise a reduction": (lambda p: p.s[p.C].parallel(p.k), "use rfactor", "for k "),
    "reduction on blocks": (lambda p: p.s[p.C].bind(p.k, "blockIdx.x"), "it runs over a reduction", "for k "),
    "reduction on vthreads": (lambda p: p.s[p.C].bind(p.k, "vthread"), "it runs over a reduction", "for k "),
    "annotate twice": (
        after_parallel(lambda p: p.s[p.D].unroll(p.i)),
        "annotated parallel already",
        "parallel i ",
    ),
    "split what is annotated": (
        after_parallel(lambda p: p.s[p.D].split(p.i, 2)),
        "split first",
        "parallel i ",
    ),
    "fuse what is annotated": (
        after_parallel(lambda p: p.s[p.D].fuse(p.i, p.j)),
        "'i' is annotated parallel already; fuse first",
        "parallel i ",
    ),
    "split by zero": (bad_split(factor=0), "length 0 is not a positive integer", "for i "),
    "split by a negative": (bad_split(nparts=-2), "length -2 is not a positive integer", "for i "),
    "split by a float": (bad_split(factor=2.5), "length 2.5 is not a positive integer", "for i "),
    "split by a bool": (bad_split(factor=True), "length True is not a positive integer", "for i "),
    "split by text": (bad_split(factor="4"), "length '4' is not a positive integer", "for i "),
    "split by too much": (bad_split(factor=2**31), "length 2147483648 is not at most 2**31", "for i "),
    "one bad length": (bad_split(factors=[4, 0]), "length 0 is not a positive integer", "for i "),
    "split by nothing": (bad_split(), "exactly one of factor=, nparts= and factors=", "for i "),
    "split by both": (bad_split(factor=2, nparts=3), "found factor=2, nparts=3", "for i "),
    "split into one": (bad_split(factors=[]), "no lengths given", "for i "),
    "fuse with a gap": (non_adjacent, "'i.0', 'j' of stage 'D': the loops must be directly nested", "for j "),
    "fuse inside out": (lambda p: p.s[p.D].fuse(p.j, p.i), "reorder first", "for i "),
    "fuse with itself": (lambda p: p.s[p.D].fuse(p.j, p.j), "directly nested", "for j "),
    "fuse spatial and reduction": (
        lambda p: p.s[p.C].fuse(p.C.op.axis[1], p.k),
        "'j' is a spatial loop and 'k' a reduce loop",
        "for k ",
    ),
    "fuse around a stage": (fuse_around_a_stage, "stage 'C' is computed inside 'i'", "for i "),
    "fuse nothing": (lambda p: p.s[p.D].fuse(), "no loops given", "loops of stage 'D':"),
    "tile a loop with itself": (lambda p: p.s[p.D].tile(p.i, p.i, 2, 2), "two different loops", "for i "),
    "unknown thread axis": (
        lambda p: p.s[p.D].bind(p.i, "threadIdx.w"),
        "use one of vthread, block",
        "for i ",
    ),
    "thread axis of another extent": (
        lambda p: p.s[p.D].bind(p.i, te.thread_axis(5, "threadIdx.x")),
        "extent 12, but threadIdx.x was given extent 5",
        "for i ",
    ),
    "tensorize by an annotation": (
        lambda p: p.s.apply(AnnotationStep(4, 0, 11)),
        "use tensorize (step TI)",
        "for i ",
    ),
    "unknown pragma": (
        lambda p: p.s[p.D].pragma(p.i, "go_faster"),
        "'go_faster' is not understood",
        "for i ",
    ),
    "pragma without its number": (
        lambda p: p.s[p.D].pragma(p.i, "auto_unroll_max_step"),
        "use 'auto_unroll_max_step$N'",
        "for i ",
    ),
    "pragma with a bad number": (
        lambda p: p.s[p.D].pragma(p.i, "auto_unroll_max_step", -3),
        "'auto_unroll_max_step$-3' is not understood",
        "for i ",
    ),
    "align to nothing": (
        lambda p: p.s[p.C].storage_align(p.C.op.axis[0], 0, 1),
        "factor 0 must be >= 1",
        "for i ",
    ),
    "align to a float": (
        lambda p: p.s[p.C].storage_align(p.C.op.axis[0], 8.0, 1),
        "factor 8.0 must be >= 1 and offset 1 >= 0, both integers",
        "for i ",
    ),
    "align by a truth value": (
        lambda p: p.s[p.C].storage_align(p.C.op.axis[0], 8, True),
        "offset True >= 0, both integers",
        "for i ",
    ),
    "align a reduction": (
        lambda p: p.s[p.C].storage_align(p.k, 8, 1),
        "not an axis of its storage",
        "for k ",
    ),
    "a loop by its name": (lambda p: p.s[p.D].split("i", 4), "found 'i'", "loops of stage 'D':"),
    "a loop by its number": (lambda p: p.s[p.D].split(0, 4), "found 0", "loops of stage 'D':"),
    "an axis of another stage": (
        lambda p: p.s[p.D].split(p.C.op.axis[0], 4),
        "'i' is not an axis of stage 'D'",
        "loops of stage 'D':",
    ),
    "a loop of another stage": (
        lambda p: p.s[p.D].split(p.s[p.C].split(p.k, 4)[0], 2),
        "'k.0' is a loop of stage 'C', not of 'D'",
        "loops of stage 'D':",
    ),
    "no such position": (
        lambda p: p.s.apply(SplitStep(4, 7, None, (2,))),
        "has no loop 7",
        "loops of stage 'D'",
    ),
    "a negative position": (
        lambda p: p.s.apply(SplitStep(4, -1, None, (2,))),
        "no loop -1",
        "loops of stage",
    ),
    "fuse no positions": (lambda p: p.s.apply(FuseStep(4, ())), "no loops given", "loops of stage 'D':"),
}


@pytest.mark.parametrize("case", LOOPS)
def test_an_illegal_change_of_loops(case):
    change, message, where = LOOPS[case]
    text = refusal(change)

    assert message in text
    assert offender(text).startswith(where.strip())


def inlined(action):
    def change(p):
        p.s[p.P].compute_inline()
        action(p)

    return change


def split_then(action):
    def change(p):
        p.s[p.C].split(p.C.op.axis[0], 4)
        action(p)

    return change


def annotate_then(action):
    def change(p):
        p.s[p.C].parallel(p.C.op.axis[0])
        action(p)

    return change


def attach_then(action):
    def change(p):
        p.s[p.P].compute_at(p.s[p.C], p.C.op.axis[0])
        action(p)

    return change


def moved_then(action):
    def change(p):
        p.s[p.C].compute_at(p.s[p.D], p.i)
        action(p)

    return change


def pragma_then(action):
    def change(p):
        p.s[p.C].pragma(p.k, "auto_unroll_max_step", 64)
        action(p)

    return change


def align_then(action):
    def change(p):
        p.s[p.C].storage_align(p.C.op.axis[0], 8, 1)
        action(p)

    return change


def rfactor_an_open_split(p):
    p.s.apply(SplitStep(3, 2, 8, (None,)))
    p.s.apply(RfactorStep(3, 2, 0))


def compute_in_lanes(p):
    p.s[p.D].vectorize(p.j)
    p.s[p.C].compute_at(p.s[p.D], p.j)


def lanes_around(p):
    p.s[p.C].compute_at(p.s[p.D], p.j)
    p.s[p.D].vectorize(p.j)


def reorder_into_lanes(p):
    p.s[p.D].vectorize(p.j)
    p.s[p.C].compute_at(p.s[p.D], p.i)
    p.s[p.D].reorder(p.j, p.i)


STAGES = {
    "at a stage that does not consume": (
        lambda p: p.s[p.C].compute_at(p.s[p.P], p.P.op.axis[0]),
        "'P' does not consume stage 'C'; its consumers are 'D'",
        "for i ",
    ),
    "at itself": (lambda p: p.s[p.C].compute_at(p.s[p.C], p.k), "'C' does not consume stage 'C'", "for k "),
    "an output somewhere": (lambda p: p.s[p.D].compute_at(p.s[p.C], p.k), "'D' is an output", "loops of"),
    "at an inlined stage": (
        inlined(lambda p: p.s[p.P].compute_inline() or p.s[p.P].reorder(*reversed(p.P.op.axis))),
        "'P' is inlined and has no loops",
        "loops of stage 'P'",
    ),
    "split an inlined stage": (
        inlined(lambda p: p.s[p.P].split(p.P.op.axis[0], 4)),
        "'P' is inlined and has no loops",
        "loops of stage 'P'",
    ),
    "inside lanes": (compute_in_lanes, "inside the vectorized loop 'j' of 'D'", "vectorize j "),
    "lanes around": (lanes_around, "inside the vectorized loop 'j' of 'D'", "vectorize j "),
    "reordered into lanes": (reorder_into_lanes, "inside the vectorized loop 'j' of 'D'", "vectorize j "),
    "inline a reduction": (lambda p: p.s[p.C].compute_inline(), "is a reduction", "loops of stage 'C'"),
    "inline an output": (lambda p: p.s[p.D].compute_inline(), "'D' is an output", "loops of stage 'D'"),
    "scope of an output": (lambda p: p.s[p.D].set_scope("local"), "cache_write it", "loops of stage 'D'"),
    "unknown scope": (lambda p: p.s[p.C].set_scope("l1"), "unknown scope 'l1'; use", "loops of stage 'C'"),
    "cache_write after split": (
        split_then(lambda p: p.s.cache_write(p.C, "local")),
        "its loops have been transformed",
        "for i.0 ",
    ),
    "cache_write after parallel": (
        annotate_then(lambda p: p.s.cache_write(p.C, "local")),
        "its loop 'i' is annotated parallel; apply cache_write first",
        "parallel i ",
    ),
    "cache_write of a stage in use": (
        attach_then(lambda p: p.s.cache_write(p.C, "local")),
        "stage 'P' is computed inside its loop 'i'",
        "for i ",
    ),
    "cache_write of a moved stage": (
        attach_then(lambda p: p.s.cache_write(p.P, "local")),
        "not computed at root; apply cache_write first",
        "loops of stage 'P'",
    ),
    "cache_read for a stage that does not read": (
        lambda p: p.s.cache_read(p.A, "local", [p.C]),
        "'C' does not read 'A'",
        "loops of stage 'C'",
    ),
    "cache_read of a part that is not": (
        lambda p: p.s.cache_read(p.A, "local", p.P, part=1),
        "'P' reads 'A' itself along 1 sets of axes, found part 1; parts are numbered from 0",
        "loops of stage 'P'",
    ),
    "rfactor of a spatial loop": (
        lambda p: p.s.rfactor(p.C, p.C.op.axis[0]),
        "'i' of stage 'C' is not a reduction loop",
        "for i ",
    ),
    "rfactor to nowhere": (lambda p: p.s.rfactor(p.C, p.k, 5), "choose one of 0..2", "loops of stage 'C'"),
    "rfactor after a spatial split": (
        split_then(lambda p: p.s.rfactor(p.C, p.k)),
        "'i.0' is not the axis that was here); apply rfactor first",
        "for i.0 ",
    ),
    "rfactor after parallel": (
        annotate_then(lambda p: p.s.rfactor(p.C, p.k)),
        "its loop 'i' is annotated parallel; apply rfactor first",
        "parallel i ",
    ),
    "rfactor of a stage in use": (
        attach_then(lambda p: p.s.rfactor(p.C, p.k)),
        "stage 'P' is computed inside its loop 'i'",
        "for i ",
    ),
    "rfactor of a moved stage": (
        moved_then(lambda p: p.s.rfactor(p.C, p.k)),
        "not computed at root; apply rfactor first",
        "loops of stage 'C'",
    ),
    "rfactor of an open split": (
        rfactor_an_open_split,
        "set the length of the split of 'k.0' first",
        "for k.0 ",
    ),
    "cache_write after pragma": (
        pragma_then(lambda p: p.s.cache_write(p.C, "local")),
        "it has the pragma auto_unroll_max_step, 64; apply cache_write first",
        "loops of stage 'C'",
    ),
    "rfactor after pragma": (
        pragma_then(lambda p: p.s.rfactor(p.C, p.k)),
        "it has the pragma auto_unroll_max_step, 64; apply rfactor first",
        "loops of stage 'C'",
    ),
    "rewrite_layout after pragma": (
        pragma_then(lambda p: p.s.rewrite_layout(p.C, [(1, None), (0, None)])),
        "it has the pragma auto_unroll_max_step, 64; apply rewrite_layout first",
        "loops of stage 'C'",
    ),
    "cache_write after storage_align": (
        align_then(lambda p: p.s.cache_write(p.C, "local")),
        "it has storage_align along 'i'; apply cache_write first",
        "loops of stage 'C'",
    ),
    "rfactor after storage_align": (
        align_then(lambda p: p.s.rfactor(p.C, p.k)),
        "it has storage_align along 'i'; apply rfactor first",
        "loops of stage 'C'",
    ),
}


@pytest.mark.parametrize("case", STAGES)
def test_an_illegal_place_or_new_stage(case):
    change, message, where = STAGES[case]
    text = refusal(change)

    assert message in text
    assert offender(text).startswith(where.strip())


NAMED = {
    "a placeholder's loops": (lambda p: p.s[p.A].split(p.i, 4), "'A' is a placeholder"),
    "inline a placeholder": (lambda p: p.s[p.A].compute_inline(), "the placeholder 'A', an input"),
    "cache_write of an input": (lambda p: p.s.cache_write(p.A, "local"), "the placeholder 'A', an input"),
    "a foreign tensor": (
        lambda p: p.s[te.placeholder((3,), name="Z")],
        "'Z' is not a stage of this schedule",
    ),
    "a tensor of the same name": (lambda p: p.s[program().D], "another tensor of the same name"),
    "no tensor": (lambda p: p.s[None], "None is not a stage of this schedule; the stages are A, P, B, C, D"),
    "a stage that does not exist": (lambda p: p.s[99], "99 is not a stage"),
    "no such stage": (
        lambda p: p.s.apply(SplitStep(9, 0, None, (2,))),
        "there is no stage 9; the stages are",
    ),
    "no such annotation": (lambda p: p.s.apply(AnnotationStep(4, 0, 99)), "no code 99; the codes are 0 for"),
    "unknown cache scope": (
        lambda p: p.s.cache_write(p.C, "warp"),
        "unknown scope 'warp'; use one of 'local'",
    ),
    "unknown scope of a copy": (lambda p: p.s.cache_read(p.A, "l2", [p.P]), "unknown scope 'l2'"),
    "cache_read for nobody": (lambda p: p.s.cache_read(p.A, "local", []), "name at least one reader"),
    "cache_read for an input": (lambda p: p.s.cache_read(p.A, "local", [p.B]), "the placeholder 'B'"),
    "cache_write of two operations": (lambda p: p.s.cache_write([p.P, p.C], "local"), "found 'P', 'C'"),
    "cache_write of nothing": (lambda p: p.s.cache_write([], "local"), "found none"),
    "follow no split": (lambda p: p.s.apply(FollowSplitStep(4, 0, 0, 1)), "step 0 of the history is None"),
    "follow too far": (
        split_then(lambda p: p.s.apply(FollowSplitStep(4, 0, 0, 3))),
        "asked for 3 lengths, but step 0 has 1",
    ),
    "follow no level": (
        split_then(lambda p: p.s.apply(FollowFusedSplitStep(4, 0, (0,), 3, 1))),
        "step 0 has 1 lengths, no level 3",
    ),
    "schedule a name": (lambda p: te.create_schedule("D"), "expected operations or tensors, found 'D'"),
    "schedule nothing": (lambda p: te.create_schedule([]), "give at least one operation"),
}


@pytest.mark.parametrize("case", NAMED)
def test_an_unknown_name(case):
    change, message = NAMED[case]

    assert message in refusal(change)


def test_an_axis_of_a_rebuilt_stage_says_where_to_find_the_new_ones():
    """After cache_write the computation has loops of its own, after rfactor the stage has new ones."""
    p = program()
    cached = p.s.cache_write(p.C, "local")
    with pytest.raises(ScheduleError, match=r"'k' of stage 'C' does not exist .any more.*s.C..op.axis"):
        p.s[p.C].split(p.k, 4)
    with pytest.raises(ScheduleError, match=r"'i' is not an axis of stage 'C.local'"):
        p.s[cached].split(p.C.op.axis[0], 4)
    p.s[cached].split(p.s[cached].op.axis[0], 4)


def test_a_symbolic_loop_cannot_be_vectorized_whole():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b)
    with pytest.raises(ScheduleError, match="extent n is symbolic; split it by a constant") as caught:
        s[b].vectorize(b.op.axis[0])
    assert offender(str(caught.value)) == "for i (0,n) [spatial]"
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((4,), lambda i: te.sum(b[k], axis=k), name="C")
    s = te.create_schedule(c)
    s[b].compute_at(s[c], c.op.axis[0])  # From here on extents are unknown until bounds are inferred.
    s[b].unroll(b.op.axis[0])
    with pytest.raises(ScheduleError, match="extent n is symbolic; split it by a constant") as caught:
        lower(s)
    assert offender(str(caught.value)) == "unroll i (0,n) [spatial]"
    s = te.create_schedule(b)
    s[b].vectorize(s[b].split(b.op.axis[0], 8)[1])


def test_a_stage_that_a_consumer_cannot_see_is_refused_when_bounds_are_inferred():
    """The order of compute_at steps is free, so this is an error only once the schedule is complete."""
    a = te.placeholder((12,), name="A")
    p = te.compute((12,), lambda i: a[i] * 2.0, name="P")
    x = te.compute((12,), lambda i: p[i] + 1.0, name="X")
    y = te.compute((12,), lambda i: p[i] + x[i], name="Y")
    s = te.create_schedule(y)
    s[p].compute_at(s[x], x.op.axis[0])
    with pytest.raises(ScheduleError, match="its consumer 'Y' is outside of that loop") as caught:
        lower(s)
    assert offender(str(caught.value)) == "for i (0,12) [spatial]"
    s[x].compute_at(s[y], y.op.axis[0])
    with pytest.raises(ScheduleError, match="compute 'P' further out"):
        lower(s)
    s[p].compute_at(s[y], y.op.axis[0])
    lower(s)


def test_an_inlined_stage_holds_no_others():
    a = te.placeholder((12,), name="A")
    p = te.compute((12,), lambda i: a[i] * 2.0, name="P")
    x = te.compute((12,), lambda i: p[i] + 1.0, name="X")
    y = te.compute((12,), lambda i: x[i] + 1.0, name="Y")
    s = te.create_schedule(y)
    s[p].compute_at(s[x], x.op.axis[0])
    with pytest.raises(ScheduleError, match="'P' is computed inside 'X'"):
        s[x].compute_inline()
    s[p].compute_root()
    s[x].compute_inline()
    with pytest.raises(ScheduleError, match="'X' is inlined and has no loops"):
        s[p].compute_at(s[x], x.op.axis[0])


def test_a_sketch_is_not_lowered():
    p = program()
    p.s.apply(SplitStep(4, 0, 12, (None,)))
    with pytest.raises(ScheduleError, match="one left open"):
        lower(p.s)


def test_replay_names_the_step_that_fails():
    with pytest.raises(ScheduleError, match=r"step 1 .*: split: stage 'D' has no loop 9"):
        State.replay(program().s.dag, [["SP", 4, 0, 12, [4], 1], ["SP", 4, 9, 12, [4], 1]])


def test_steps_of_a_state_take_stages_as_positions_names_tensors_and_operations():
    p = program()
    state = p.s.state
    for B, C, D in (("B", "C", "D"), (p.B, p.C, p.D), (p.B.op, p.C.op, p.D.op)):
        made = state.split(C, 2, (4,)).reorder(C, (0, 1, 3, 2)).annotate(D, 0, 3).compute_at(C, D, 0)
        assert (
            made.steps
            == state.split(3, 2, (4,)).reorder(3, (0, 1, 3, 2)).annotate(4, 0, 3).compute_at(3, 4, 0).steps
        )
        assert state.cache_read(B, "local", [C]).steps == state.cache_read(2, "local", [3]).steps


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda state: state.split(17, 0, (4,)), "split: there is no stage 17; the stages are 0: A"),
        (lambda state: state.split("Z", 0, (4,)), "'Z' is not a stage of this schedule"),
        (lambda state: state.fuse(None, (0, 1)), "None is not a stage of this schedule"),
        (lambda state: state.split("D", "i", (4,)), "split: a loop is its position, 0..1; found 'i'"),
        (lambda state: state.reorder("D", ("j", 0)), r"\['j', 0\] is not a permutation of its 2 loops"),
        (lambda state: state.split("D", 0, 4), "split: expected a list of lengths, found 4"),
        (lambda state: state.fuse("D", 0), "fuse: expected a list of loops, found 0"),
        (lambda state: state.cache_read("B", "local", "C"), "expected a list of readers, found 'C'"),
        (lambda state: state.annotate("D", 0, "parallel"), "no code 'parallel'; the codes are 0 for"),
    ],
)
def test_a_step_of_a_state_says_what_it_takes(step, said):
    with pytest.raises(ScheduleError, match=said):
        step(program().s.state)


def test_schedules_states_stages_and_loops_are_shown_briefly():
    p = program()
    outer, _ = p.s[p.D].split(p.i, factor=4)
    assert repr(p.s) == "<Schedule of P, C, D, 1 steps>"
    assert repr([p.s.state]) == "[<State of P, C, D, 1 steps>]"
    assert repr(p.s[p.D]) == "<stage D, loops i.0, i.1, j>"
    assert repr(outer) == "<loop D.i.0>"
    assert repr(p.s[p.A]) == "<stage A, loops (none)>"


def huge(parallel_split):
    a = te.placeholder((46341,), "int8", name="A")
    b = te.compute((46341, 46341), lambda i, j: a[j], name="B")
    s = te.create_schedule(b)
    loop = s[b].fuse(*b.op.axis)
    if parallel_split:
        s[b].split(loop, factor=64)
    return s


def test_a_loop_that_int32_cannot_count_is_refused():
    """46341 * 46341 is just beyond int32; wrapped guards would compute the wrong part."""
    with pytest.raises(ScheduleError, match=r"more than 2\*\*31 - 1 iterations"):
        huge(parallel_split=True)


def test_parts_that_cover_more_than_int32_counts_are_refused():
    extent = 2**31 - 1
    a = te.placeholder((extent,), "int8", name="A")
    b = te.compute((extent,), lambda i: a[i], name="B")
    s = te.create_schedule(b)
    s[b].split(b.op.axis[0], factor=64)
    with pytest.raises(ScheduleError, match="would cover 2147483648 iterations"):
        lower(s)


def test_a_factored_loop_is_refused_where_its_split_would_be():
    """The split is part of the expressions then, whose guard would wrap."""
    a, k = te.placeholder((1,), "int64", name="A"), te.reduce_axis((0, 2**31 - 1), "k")
    q = te.compute((1,), lambda i: te.sum(a[i], axis=k), name="q")
    s = te.create_schedule(q)
    _, middle, _ = s[q].split(k, factors=[3, 50000])
    with pytest.raises(ScheduleError, match="would cover 2147550000 iterations"):
        s.rfactor(q, middle)


def test_so_is_one_of_loops_that_were_fused_while_their_extents_were_open():
    a = te.placeholder((1,), "int64", name="A")
    k1, k2 = te.reduce_axis((0, 70000), "k1"), te.reduce_axis((0, 70000), "k2")
    r = te.compute((1,), lambda i: te.sum(a[i], axis=[k1, k2]), name="r")
    o = te.compute((1,), lambda i: r[i] + a[i], name="o")
    s = te.create_schedule(o)
    s[r].compute_at(s[o], o.op.axis[0])
    s[r].fuse(k1, k2)
    with pytest.raises(ScheduleError, match="would cover 4900000000 iterations"):
        s[r].compute_root()


def test_padding_beyond_what_loops_count_is_refused():
    p = te.compute((4,), lambda i: te.cast(i, "float32"), name="p")
    q = te.compute((4,), lambda i: p[i] * 2.0, name="q")
    with pytest.raises(ScheduleError, match="more than loop variables count"):
        te.create_schedule(q).pad(p, "local", [2**32])


def test_a_tile_that_is_refused_leaves_its_loops_whole():
    x = te.placeholder((8, 8), name="X")
    y = te.compute((8, 8), lambda i, j: x[i, j], name="Y")
    s = te.create_schedule(y)
    before = s.state
    with pytest.raises(ScheduleError, match="length 0 is not a positive integer"):
        s[y].tile(*y.op.axis, 4, 0)
    assert s.state is before
    s[y].tile(*y.op.axis, 4, 2)


@pytest.mark.parametrize("seed", range(60))
def test_steps_with_other_numbers_apply_or_are_refused(seed: int) -> None:
    """Whatever a damaged record names: stages, loops, lengths."""
    dag = ComputeDAG(softmax(6, 10) if seed % 2 else matmul(6, 10, 5))
    state = random_state(Chooser.from_seed(seed), dag, 12)
    steps = [step.to_json() for step in state.steps]
    for which, step in enumerate(steps):
        for field in [at for at, value in enumerate(step) if isinstance(value, int)]:
            for number in (-1, len(state.stages), 99):
                changed = [*step[:field], number, *step[field + 1 :]]
                with suppress(AnsorError):
                    State.replay(state.dag, [*steps[:which], changed, *steps[which + 1 :]])
