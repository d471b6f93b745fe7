"""Prefetching: a step of a schedule, what it refuses, its code, and where the sketches have it."""

from __future__ import annotations

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.errors import ScheduleError
from ansor.ir.nest import Alloc, Prefetch, Seq, Store, walk_statements
from ansor.schedule.lowering import lower
from ansor.schedule.manual import Schedule
from ansor.schedule.source import schedule_code
from ansor.schedule.stages import ComputeAt
from ansor.schedule.state import State
from ansor.te.expr import Load, distinct_nodes
from ansor.te.tensor import Tensor
from ansor.workloads.catalogue import get_workload
from sketches import ProgramSpace
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from tests.program_laws import Case, check_all, check_replay

ZEN4 = "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2"


def rows(n: int, m: int, dtype: str = "float32") -> tuple[Schedule, list[Tensor]]:
    """exp(X - the row's maximum), doubled; the second pass over a row asks for the next one."""
    x = te.placeholder((n, m), dtype, "X")
    k = te.reduce_axis((0, m), "k")
    most = te.compute((n,), lambda i: te.max(x[i, k], axis=k), name="Most")
    grown = te.compute((n, m), lambda i, j: te.exp(x[i, j] - most[i]), name="Grown")
    y = te.compute((n, m), lambda i, j: grown[i, j] * te.const(2, dtype), name="Y")
    s = te.create_schedule(y)
    i = s[y].op.axis[0]
    s[most].compute_at(s[y], i)
    s[grown].compute_at(s[y], i)
    s[y].parallel(i)
    s[grown].prefetch()
    return s, [x, y]


# -- the step ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m", "dtype"), [(5, 48, "float32"), (3, 37, "float64"), (4, 1, "float16")])
def test_what_is_computed_does_not_depend_on_it(n: int, m: int, dtype: str) -> None:
    s, _ = rows(n, m, dtype)
    check_all(Case.of(s.state))


def test_the_step_is_printed_recorded_and_replayed() -> None:
    s, tensors = rows(4, 32)
    assert s.state.steps[-1].to_json() == ["PF", 2]
    assert "  Grown prefetch\n" in str(s)
    assert "s[Grown].prefetch()" in schedule_code(s.state)
    assert "prefetch X[i + 1, j*8 + j.v]" in str(lower(s))
    task = ansor.SearchTask(compute_dag=tensors, target="llvm")
    line = ansor.dump_record_to_string(
        ansor.MeasureInput(task, s.state), ansor.MeasureResult([1e-3], 0, "", 1.0, 0.0)
    )
    assert line.startswith("# ansor ")


def test_a_line_is_asked_for_once() -> None:
    s, tensors = rows(8, 512)
    text = ansor.build(s, tensors, target=ZEN4).get_source("asm")
    assert text.count("prefetcht1") == 1  # in a loop over vectors of a line each
    s, tensors = rows(8, 16, "float64")
    text = ansor.build(s, tensors, target="llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3").get_source("asm")
    assert "prefetcht1" in text


def test_the_loop_around_may_be_further_out_or_fused() -> None:
    x = te.placeholder((6, 4, 32), name="X")
    b = te.compute((6, 4, 32), lambda i, j, k: te.sqrt(x[i, j, k]), name="B")
    c = te.compute((6, 4, 32), lambda i, j, k: b[i, j, k] + 1.0, name="C")
    s = te.create_schedule(c)
    i, j, _ = s[c].op.axis
    fused = s[c].fuse(i, j)
    s[b].compute_at(s[c], fused)
    s[b].prefetch()
    check_all(Case.of(s.state))
    (ahead,) = (one for one in walk_statements(lower(s).body) if isinstance(one, Prefetch))
    assert ahead.buffer.name == "X"


def test_what_cannot_ask_ahead_is_refused() -> None:
    x = te.placeholder((8, 8), name="X")
    b = te.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute((8,), lambda i: te.sum(x[i, k] * b[i, k], axis=k), name="Total")
    c = te.compute((8, 8), lambda i, j: b[i, j] * total[i], name="C")
    s = te.create_schedule(c)
    with pytest.raises(ScheduleError, match="stage 'B': there is no loop around it"):
        s[b].prefetch()
    s[total].compute_at(s[c], s[c].op.axis[0])
    with pytest.raises(ScheduleError, match="stage 'Total': it is a reduction"):
        s[total].prefetch()
    d = te.compute((8, 8), lambda i, j: c[i, j] * 2.0, name="D")
    s = te.create_schedule(d)
    s[c].compute_at(s[d], s[d].op.axis[0])
    with pytest.raises(ScheduleError, match="stage 'C': it reads no input"):
        s[c].prefetch()


def test_what_an_inlined_stage_reads_is_asked_for() -> None:
    x = te.placeholder((8, 32), name="X")
    b = te.compute((8, 32), lambda i, j: x[i, j] + 1.0, name="B")
    c = te.compute((8, 32), lambda i, j: te.exp(b[i, j]), name="C")
    d = te.compute((8, 32), lambda i, j: c[i, j] * 2.0, name="D")
    s = te.create_schedule(d)
    s[b].compute_inline()
    s[c].compute_at(s[d], s[d].op.axis[0])
    s[c].prefetch()
    assert "prefetch X[i + 1" in str(lower(s))
    check_all(Case.of(s.state))


# -- the sketches ------------------------------------------------------------------------------------------


def space_of(n: int, m: int, **params: int) -> ProgramSpace:
    task = ansor.SearchTask(compute_dag=get_workload("softmax").tensors(n, m), target=ZEN4)
    return ProgramSpace.of(task, params)


def programs(space: ProgramSpace) -> list[State]:
    sample = space.sample(60, np.random.default_rng(0))
    return [p.materialize(row) for p in sample.populations for row in range(min(len(p), 4))]


def asks(state: State) -> bool:
    return any(step.code == "PF" for step in state.steps)


def passes(state: State) -> int:
    """How many stores in the loops around that of the exponentials, and in these, read the input."""
    body = lower(state, simple_mode=True).body
    while isinstance(body, Alloc):
        body = body.body
    (around,) = (
        part
        for part in (body.stmts if isinstance(body, Seq) else (body,))
        if any(isinstance(one, Store) and one.buffer.name == "Exp" for one in walk_statements(part))
    )
    return sum(
        any(isinstance(node, Load) and node.buffer.name == "X" for node in distinct_nodes(one.value))
        for one in walk_statements(around)
        if isinstance(one, Store)
    )


def test_programs_ask_for_the_next_row_where_one_is_passed_over_twice() -> None:
    kinds = set()
    for state in programs(space_of(4096, 1024)):
        (exp,) = (stage for stage in state.stages if stage.name == "Exp")
        again = exp.compute_at is ComputeAt.ITER and passes(state) > 1
        assert asks(state) == again
        kinds.add(again)
        check_replay(state)
    assert kinds == {False, True}


def test_no_program_asks_where_the_cache_holds_the_input_or_the_parameter_says_so() -> None:
    assert not any(map(asks, programs(space_of(64, 256))))
    assert not any(map(asks, programs(space_of(4096, 1024, cpu_prefetch=0))))


def test_a_logged_program_is_found_again() -> None:
    space = space_of(4096, 1024)
    asking = [state for state in programs(space) if asks(state)]
    for state in asking:
        found = locate(Neighbourhood(space), state)
        assert found is not None
        family, (row,) = found
        assert family.program(row) == state.steps
    assert asking
