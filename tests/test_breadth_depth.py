"""Programs nested far beyond Python's recursion limit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.depth import LIMITS, nested_calls, with_depth
from ansor.errors import LoweringError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from costmodel.explain import explain
from costmodel.extraction.extract import extract
from search.cli.main import run
from search.plans import plan_key
from tests.program_laws import check_printed_code


def additions(count: int) -> list[te.Tensor]:
    """So many in one stage, each around the one before."""
    source = te.placeholder((4,), name="A")

    def body(i: te.Expr) -> te.Expr:
        value = source[i]
        for _ in range(count):
            value = value + source[i]
        return value

    return [source, te.compute((4,), body, name="C")]


def test_5000_additions_in_one_compute() -> None:
    source, result = additions(5000)
    built = ansor.build(te.create_schedule(result), [source, result])
    np.testing.assert_array_equal(built(np.ones(4, np.float32)), np.full(4, 5001, np.float32))


def test_3000_additions_are_searched() -> None:
    """Features, keys and FLOPs of the programs, and what is built: all of them follow the nesting."""
    task = ansor.SearchTask(compute_dag=additions(3000))
    with ansor.LocalRunner(number=1, min_repeat_ms=0) as runner:
        result = task.tune(ansor.TuningOptions(num_measure_trials=1, runner=runner, verbose=0))
    assert not result.errors, result.error_examples
    assert task.compute_dag.flop_count == 4 * 3000
    assert "1 trial" in str(result)


def test_3000_additions_are_estimated_and_explained() -> None:
    task = ansor.SearchTask(compute_dag=additions(3000))
    states = [State.initial(task.compute_dag)]
    assert np.isfinite(ansor.AnalyticModel().predict(task, states)).all()
    assert f"{4 * 3000}" in explain(task, states[0])


@pytest.mark.parametrize("inline", [False, True])
def test_a_chain_of_1000_computes(inline: bool) -> None:
    source = result = te.placeholder((4,), name="A")
    for step in range(1000):
        result = te.compute((4,), lambda i, read=result: read[i] + 1.0, name=f"c{step}_")
    schedule = te.create_schedule(result)
    if inline:
        for op in schedule.state.dag.ops[1:-1]:
            schedule[op].compute_inline()
    assert schedule.state.consumers(0) == ({1000} if inline else {1})
    assert schedule.state.producers(1000) == ({0} if inline else {999})
    built = ansor.build(schedule, [source, result])
    np.testing.assert_array_equal(built(np.ones(4, np.float32)), np.full(4, 1001, np.float32))


def test_500_shifts_inlined_into_each_other() -> None:
    """The index that the last operation reads is nested as deeply."""
    source = result = te.placeholder((1000,), name="A")
    for step in range(500):
        result = te.compute((999 - step,), lambda i, read=result: read[i + 1] + 1.0, name=f"c{step}_")
    schedule = te.create_schedule(result)
    for op in schedule.state.dag.ops[2:-1]:
        schedule[op].compute_inline()
    bounded = schedule.state.with_bounds()
    assert [bounded.stages[stage].iterators[0].extent for stage in (1, -1)] == [500, 500]
    assert ansor.program_key(bounded) == ansor.program_key(schedule.state)
    built = ansor.build(schedule, [source, result])
    expected = np.arange(500, 1000, dtype=np.float32) + 500
    np.testing.assert_array_equal(built(np.arange(1000, dtype=np.float32)), expected)


@ansor.register_workload
def roots_in_stages(length: int, steps: int) -> list[te.Tensor]:
    """Square roots by Newton's method, a stage for each step, which reads the one before twice."""
    source = te.placeholder((length,), name="A")
    root = te.compute((length,), lambda i: source[i] * 0.5 + 0.5, name="Root")
    for step in range(steps):
        root = te.compute(
            (length,), lambda i, guess=root: (guess[i] + source[i] / guess[i]) * 0.5, name=f"root{step}_"
        )
    return [source, root]


@ansor.register_workload
def roots_in_one(length: int, steps: int) -> list[te.Tensor]:
    """The same, all steps in one stage."""
    source = te.placeholder((length,), name="A")

    def body(i: te.Expr) -> te.Expr:
        guess = source[i] * 0.5 + 0.5
        for _ in range(steps):
            guess = (guess + source[i] / guess) * 0.5
        return guess

    return [source, te.compute((length,), body, name="Root")]


ROOTS = [roots_in_stages, roots_in_one]


@pytest.mark.parametrize("workload", ROOTS)
def test_60_steps_that_each_read_the_one_before_twice(workload: object) -> None:
    """Inlined into each other they read the first one 2**60 times, and are 60 steps all the same."""
    task = ansor.SearchTask(func=workload, args=(8, 60))
    (state,) = ansor.sample_programs(task, 1, np.random.default_rng(0))
    assert np.isfinite(extract(task, [state]).values).all()
    built = ansor.build(state, task.compute_dag.tensors)
    squares = np.arange(1, 9, dtype=np.float32)
    np.testing.assert_allclose(built(squares), np.sqrt(squares), rtol=1e-6)


@pytest.mark.parametrize("workload", ROOTS)
def test_60_steps_are_written_as_60_steps(workload: object) -> None:
    """The computation, its body, the loop nest and the program as code."""
    task = ansor.SearchTask(func=workload, args=(8, 60))
    (state,) = ansor.sample_programs(task, 1, np.random.default_rng(0))
    nest = str(ansor.lower(state, target=task.target))
    for text in (str(task.compute_dag), str(state.dag.ops[-1].body[0]), nest, schedule_code(state)):
        assert len(text) < 60 * 400
    assert 60 <= nest.count("/") < 60 * 5
    check_printed_code(state)
    assert len(plan_key(task, state)) == 32


@pytest.mark.usefixtures("small_searches", "kept_workers")
def test_60_steps_are_tuned_and_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, page, file = tmp_path / "log.json", tmp_path / "report.html", tmp_path / "roots.py"
    file.write_text(f"from {__name__} import roots_in_one, roots_in_stages\n")
    for workload in ROOTS:
        name = f"{file}:{workload.__name__}"
        task = ansor.SearchTask(func=workload, args=(64, 60))
        callbacks = [ansor.RecordToFile(log)]
        options = ansor.TuningOptions(num_measure_trials=4, verbose=0, measure_callbacks=callbacks)
        result = task.tune(options)
        assert not result.errors, result.error_examples
        for wanted in ((), ("--code",), ("--json",)):
            assert run(["best", str(log), name, "64", "60", *wanted]) == 0
        assert run(["show", name, "64", "60"]) == 0
    assert run(["report", str(log), "-o", str(page)]) == 0
    assert run(["best", str(log)]) == 0
    assert len(capsys.readouterr().out) + len(page.read_text()) < 500_000


def test_the_loops_that_the_ends_of_a_chain_of_1000_computes_share() -> None:
    source = result = te.placeholder((4, 3), name="A")
    for step in range(1000):
        result = te.compute((4, 3), lambda i, j, read=result: read[i, j] + 1.0, name=f"c{step}_")
    rows = te.compute((4, 3), lambda i, j: result[i, 2 - j], name="C")
    access = ComputeDAG([source, rows]).access
    assert access.num_common_outer_iterators(rows.op, source.op) == 1


def test_the_recursion_limit_is_put_back_and_endless_recursion_is_an_error() -> None:
    def endless() -> int:
        return endless() + 1

    usual = sys.getrecursionlimit()
    with pytest.raises(LoweringError, match="nested more deeply"):
        with_depth(endless)
    assert sys.getrecursionlimit() == usual


def test_what_is_deep_inside_of_what_is_deep() -> None:
    def nested(calls: int) -> int:
        return 0 if calls == 0 else nested(calls - 1) + 1

    usual = sys.getrecursionlimit()
    assert with_depth(lambda: nested(2_000) + with_depth(lambda: nested(LIMITS[0]))) == 2_000 + LIMITS[0]
    assert sys.getrecursionlimit() == usual


def test_the_recursion_limit_is_put_back_by_the_last_who_needs_more() -> None:
    usual = sys.getrecursionlimit()
    first, second = nested_calls(7_000), nested_calls(5_000)
    first.__enter__()
    second.__enter__()
    assert sys.getrecursionlimit() == 7_000
    first.__exit__(None, None, None)
    assert sys.getrecursionlimit() == 5_000
    second.__exit__(None, None, None)
    assert sys.getrecursionlimit() == usual


def chain(count: int) -> tuple[te.Tensor, list[te.Tensor]]:
    """So many stages, each of which reads the one before."""
    x = te.placeholder((4,), name="X")
    made = [te.compute((4,), lambda i: x[i] + 1.0, name="p0")]
    for number in range(1, count):
        made.append(te.compute((4,), lambda i, p=made[-1]: p[i] + 1.0, name=f"p{number}"))
    return x, made


def test_an_input_that_1200_stages_prepare() -> None:
    _, stages = chain(1200)
    prepared = te.prepared(stages[-1])
    y = te.compute((4,), lambda i: prepared[i] + 1.0, name="Y")
    assert len(ComputeDAG([prepared, y]).structure_hash) > 10
    assert "te.prepared(" in schedule_code(te.create_schedule([prepared, y]).state)


def test_1100_stages_inside_of_each_other() -> None:
    _, stages = chain(1100)
    s = te.create_schedule(stages[-1])
    for inner, outer in zip(stages[-2::-1], stages[:0:-1], strict=True):
        s[inner].compute_at(s[outer], outer.op.axis[0])
    assert str(s).count(" = ...") == 1100
    assert s.state.key
