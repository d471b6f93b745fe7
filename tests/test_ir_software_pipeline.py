"""Loops whose iterations overlap: what becomes of them, where they stay serial, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ansor import te
from ansor.errors import ScheduleError
from ansor.ir.bounds import Bounds
from ansor.ir.interp import run_nest
from ansor.ir.nest import (
    Alloc,
    Buffer,
    For,
    If,
    LoopKind,
    LoopNest,
    Prefetch,
    Stmt,
    Store,
    seq,
    walk_statements,
)
from ansor.ir.passes import software_pipeline
from ansor.ir.passes.software_pipeline import pipeline_loops
from ansor.ir.registers import RegisterLimits
from ansor.ir.verify import check_nest
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import AnnotationStep
from ansor.te import Tensor
from ansor.te.expr import Load, Var, const
from tests.gpu_schedules import kernels
from tests.program_laws import Case, check_all

LIMITS = RegisterLimits(vector_bits=512, num_registers=32)


def chain(rows: int, columns: int, tile: int, pipelined: bool = True) -> tuple[Schedule, list[Tensor]]:
    """Integers less the maximum of their row, and plus their sum: three passes over a row, one stored."""
    x = te.placeholder((rows, columns), "int32", "X")
    k, m = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "m")
    most = te.compute((rows,), lambda i: te.max(x[i, k], axis=k), name="Most")
    less = te.compute((rows, columns), lambda i, j: x[i, j] - most[i], name="Less")
    total = te.compute((rows,), lambda i: te.sum(less[i, m], axis=m), name="Total")
    y = te.compute((rows, columns), lambda i, j: less[i, j] + total[i], name="Y")
    s = te.create_schedule(y)
    outer, inner = s[y].split(s[y].op.axis[0], factor=tile)
    if pipelined:
        s[y].pipeline(inner)
    for stage in (total, less, most):
        s[stage].compute_at(s[y], inner)
    s[y].parallel(outer)
    return s, [x, y]


def scratch(nest: LoopNest) -> dict[str, tuple[object, ...]]:
    allocated = [stmt.buffer for stmt in walk_statements(nest.body) if isinstance(stmt, Alloc)]
    return {buffer.name: buffer.shape for buffer in allocated if buffer.scope != "register"}


def serial_loops(nest: LoopNest) -> list[For]:
    loops = [stmt for stmt in walk_statements(nest.body) if isinstance(stmt, For)]
    return [loop for loop in loops if loop.kind is LoopKind.SERIAL]


def test_phases_work_at_rows_that_follow_each_other() -> None:
    s, tensors = chain(64, 256, 16)

    nest = lower(s, tensors, limits=LIMITS)

    check_nest(nest)
    assert "pipeline" not in str(nest)
    # Four passes: the maximum is used by the next one, what is stored by the two behind that.
    assert scratch(nest) == {"Total": (2, 1), "Less": (3, 1, 256), "Most": (2, 1)}
    steps = serial_loops(nest)[0]
    assert steps.extent == 16 + 3
    assert "    if i.1 >= 3 and i.1 < 16:" in str(nest).splitlines()


def test_their_loops_are_one_in_which_longer_ones_do_several_iterations() -> None:
    s, tensors = chain(64, 512, 16)

    steps = serial_loops(lower(s, tensors, limits=LIMITS))[0]

    together = next(stmt for stmt in walk_statements(steps.body) if isinstance(stmt, If)).then
    loops = [stmt for stmt in walk_statements(together) if isinstance(stmt, For)]
    assert [loop.extent for loop in loops if loop.kind is LoopKind.SERIAL] == [8, 4, 4]


def test_what_the_shortest_loop_leaves_of_another_one_is_done_behind_it() -> None:
    s, tensors = chain(16, 16 * 23, 8)

    steps = serial_loops(lower(s, tensors, limits=LIMITS))[0]

    together = next(stmt for stmt in walk_statements(steps.body) if isinstance(stmt, If)).then
    loops = [stmt for stmt in walk_statements(together) if isinstance(stmt, For)]
    assert [loop.extent for loop in loops if loop.kind is LoopKind.SERIAL][:5] == [5, 4, 4, 3, 3]


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 8, 64])
@pytest.mark.parametrize(("rows", "columns"), [(1, 100), (6, 260), (13, 16), (13, 100)])
def test_they_compute_what_the_graph_says(rows: int, columns: int, tile: int) -> None:
    s, _ = chain(rows, columns, tile)
    check_all(Case.of(s.state))


def random_chain(seed: int) -> State:
    """Up to six passes over rows of integers, stored or inlined, each of them over what is there by then."""
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 14)), int(rng.integers(8, 140))
    x = te.placeholder((rows, columns), "int32", "X")
    whole: list[Tensor] = [x]
    row: list[Tensor] = []
    for number in range(rng.integers(1, 6)):
        source = whole[rng.integers(len(whole))]
        if (rng.integers(2) and number) or not row:
            k, reducer = te.reduce_axis((0, columns), f"k{number}"), (te.sum, te.max, te.min)[rng.integers(3)]
            term = row[rng.integers(len(row))] if row else None
            row.append(
                te.compute(
                    (rows,),
                    lambda i, s=source, t=term, k=k, reducer=reducer: reducer(
                        s[i, k] if t is None else s[i, k] - t[i], axis=k
                    ),
                    name=f"R{number}",
                )
            )
        else:
            part = row[rng.integers(len(row))]
            whole.append(
                te.compute(
                    (rows, columns), lambda i, j, s=source, p=part: s[i, j] * 3 - p[i], name=f"W{number}"
                )
            )
    last, part = whole[-1], row[-1]
    out = te.compute((rows, columns), lambda i, j: last[i, j] + part[i], name="Out")
    state = State.initial(ComputeDAG([x, out]))
    output = len(state.stages) - 1
    state = state.split(output, 0, (int(rng.integers(1, rows + 2)),)).annotate(output, 1, Annotation.PIPELINE)
    for stage in range(output - 1, 0, -1):
        inline = not state.stages[stage].op.reduce_axis and rng.integers(2)
        state = state.compute_inline(stage) if inline else state.compute_at(stage, output, 1)
        if not inline:
            state = state.pragma(stage, 0, f"auto_unroll_max_step${rng.choice([0, 0, 16])}")
    return state.annotate(output, 0, Annotation.PARALLEL)


@pytest.mark.parametrize("seed", range(25))
def test_random_chains(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(software_pipeline, "_LONG", 2 + seed % 3)  # loops of vectors are short in small rows

    check_all(Case.of(random_chain(seed)))


def test_a_result_is_that_of_the_serial_loop_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (13, 200)).astype("int32")
    results = []
    for pipelined in (False, True):
        s, tensors = chain(13, 200, 4, pipelined)
        y = np.full((13, 200), 77, "int32")
        run_nest(lower(s, tensors, limits=LIMITS), [x, y], check_races=True)
        results.append(y)
    np.testing.assert_array_equal(*results)


# -- where loops stay serial ---------------------------------------------------------------------------------


def pass_over(source: Buffer, target: Buffer, row: Var, columns: int = 8) -> For:
    """target[row, j] = source[row, j] + 1"""
    j = Var("j", "int32")
    at = (row, j)
    return For(j, columns, LoopKind.SERIAL, Store(target, at, Load(source, at, "int32") + const(1)))


def pipelined(*body: Stmt, row: Var, allocated: tuple[Buffer, ...] = ()) -> Stmt:
    made = seq(*body)
    for buffer in allocated:
        made = Alloc(buffer, made)
    return pipeline_loops(For(row, 6, LoopKind.PIPELINED, made), Bounds({}))


def a_buffer(name: str, scope: str = "global") -> Buffer:
    return Buffer(name, "int32", (6, 8), scope)


def test_memory_from_outside_that_phases_share_keeps_them_in_order() -> None:
    row, x, y, z = Var("i", "int32"), a_buffer("x"), a_buffer("y"), a_buffer("z")

    chained = pipelined(pass_over(x, y, row), pass_over(y, z, row), row=row)
    apart = pipelined(pass_over(x, y, row), pass_over(x, z, row), row=row)
    private = pipelined(pass_over(x, y, row), pass_over(y, z, row), row=row, allocated=(y,))

    assert isinstance(chained, For)
    assert (chained.kind, chained.extent) == (LoopKind.SERIAL, 6)
    assert isinstance(apart, For)
    assert apart.extent == 7
    assert isinstance(private, Alloc)
    assert private.buffer.shape == (2, 6, 8)


def test_registers_and_memory_of_symbolic_size_belong_to_one_phase() -> None:
    row, x, z = Var("i", "int32"), a_buffer("x"), a_buffer("z")
    sized = replace(a_buffer("s"), shape=(6, Var("n", "int32")))

    for shared in (a_buffer("r", "register"), sized):
        found = pipelined(pass_over(x, shared, row), pass_over(shared, z, row), row=row, allocated=(shared,))
        assert isinstance(found, For)
        assert (found.kind, found.extent) == (LoopKind.SERIAL, 6)


def test_fewer_rows_than_phases_never_overlap() -> None:
    for tile, overlap in ((3, False), (4, True)):
        s, tensors = chain(12, 256, tile)
        nest = lower(s, tensors, limits=LIMITS)
        assert any(isinstance(stmt, If) for stmt in walk_statements(nest.body)) == overlap


def test_one_loop_or_short_ones_are_no_phases() -> None:
    row, x, y, z = Var("i", "int32"), a_buffer("x"), a_buffer("y"), a_buffer("z")

    for body in ([pass_over(x, y, row)], [pass_over(x, y, row), pass_over(x, z, row, columns=3)]):
        found = pipelined(*body, row=row)
        assert isinstance(found, For)
        assert (found.kind, found.extent) == (LoopKind.SERIAL, 6)


def test_phases_of_very_different_lengths_are_not_joined() -> None:
    row, x, y, z = Var("i", "int32"), a_buffer("x"), a_buffer("y"), a_buffer("z")

    for columns, steps in ((64, 7), (68, 6)):
        found = pipelined(pass_over(x, y, row, columns=4), pass_over(x, z, row, columns=columns), row=row)
        assert isinstance(found, For)
        assert found.extent == steps


def test_memory_is_asked_for_rows_that_no_phase_has_come_to() -> None:
    row, x, y, z = Var("i", "int32"), a_buffer("x"), a_buffer("y"), a_buffer("z")
    j = Var("j", "int32")
    ahead = For(j, 8, LoopKind.SERIAL, Prefetch(x, (row + const(1), j)))

    found = pipelined(pass_over(x, y, row), ahead, pass_over(x, z, row), ahead, row=row)

    assert isinstance(found, For)
    assert found.extent == 6 + 1  # what stores nothing is no phase
    asked = [stmt.indices[0] for stmt in walk_statements(found.body) if isinstance(stmt, Prefetch)]
    assert {str(index) for index in asked} == {"(i + 1)"}


# -- the step ------------------------------------------------------------------------------------------------


def test_the_annotation_is_in_records_and_code() -> None:
    s, _ = chain(8, 32, 4)
    steps = [step.to_json() for step in s.state.steps]

    assert ["AN", 4, 1, 12] in steps
    assert State.replay(s.state.dag, steps).stages[-1].iterators[1].annotation is Annotation.PIPELINE
    assert "pipeline i.1 (0,4)" in str(s.state.with_bounds())
    assert "  pipeline i.1 in 0..4:" in str(lower(s, simple_mode=True)).splitlines()
    assert "s[Y].pipeline(Y_i_i)" in schedule_code(s.state).splitlines()


def test_reductions_are_refused_and_so_are_gpus() -> None:
    x = te.placeholder((64, 64), "float32", "X")
    k = te.reduce_axis((0, 64), "k")
    y = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    s = te.create_schedule(y)
    with pytest.raises(ScheduleError, match="pipeline 'k' of stage 'Y': it runs over a reduction"):
        s[y].pipeline(k)

    s[y].bind(s[y].split(y.op.axis[0], factor=8)[0], "blockIdx.x")
    s.apply(AnnotationStep(1, 1, Annotation.PIPELINE))
    with pytest.raises(ScheduleError, match="annotated pipeline, which is for CPUs; for a GPU, leave it out"):
        kernels(s, [x, y])


def test_symbolic_extents_are_pipelined_too() -> None:
    row, n = Var("i", "int32"), Var("n", "int32")
    x, y, z = (replace(a_buffer(name), shape=(n, const(8))) for name in "xyz")
    loop = For(row, n, LoopKind.PIPELINED, seq(pass_over(x, y, row), pass_over(x, z, row)))

    found = pipeline_loops(loop, Bounds({n: (0, None)}))

    assert isinstance(found, For)
    assert (found.kind, str(found.extent)) == (LoopKind.SERIAL, str(n + const(1)))
    for rows in range(5):
        first, second = np.arange(8 * rows, dtype="int32").reshape(rows, 8), np.zeros((2, rows, 8), "int32")
        run_nest(LoopNest("f", (x, y, z), (n,), found, (1, 2)), [first, *second], [rows])
        np.testing.assert_array_equal(second, [first + 1, first + 1])
