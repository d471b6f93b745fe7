"""Programs nested far beyond Python's recursion limit."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import ansor
from ansor import te
from ansor.depth import with_depth
from ansor.errors import LoweringError
from ansor.schedule.dag import ComputeDAG
from costmodel.extract import extract


def test_5000_additions_in_one_compute() -> None:
    source = te.placeholder((4,), name="A")

    def body(i: object) -> object:
        value = source[i]
        for _ in range(5000):
            value = value + source[i]
        return value

    result = te.compute((4,), body, name="C")
    built = ansor.build(te.create_schedule(result), [source, result])
    np.testing.assert_array_equal(built(np.ones(4, np.float32)), np.full(4, 5001, np.float32))


def test_3000_additions_are_searched() -> None:
    """Features, keys and FLOPs of the programs, and what is built: all of them follow the nesting."""
    source = te.placeholder((8,), name="A")

    def body(i: object) -> object:
        value = source[i]
        for _ in range(3000):
            value = value + source[i]
        return value

    task = ansor.SearchTask(compute_dag=[source, te.compute((8,), body, name="C")])
    with ansor.LocalRunner(number=1, min_repeat_ms=0) as runner:
        result = task.tune(ansor.TuningOptions(num_measure_trials=1, runner=runner, verbose=0))
    assert not result.errors, result.error_examples
    assert task.compute_dag.flop_count == 8 * 3000
    assert "1 trial" in str(result)


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


def test_60_steps_that_each_read_the_one_before_twice() -> None:
    """Inlined into each other they read the first one 2**60 times, and are 60 steps all the same."""
    source = te.placeholder((8,), name="A")
    root = te.compute((8,), lambda i: source[i] * 0.5 + 0.5, name="Root")
    for step in range(60):
        root = te.compute(
            (8,), lambda i, guess=root: (guess[i] + source[i] / guess[i]) * 0.5, name=f"root{step}_"
        )
    task = ansor.SearchTask(compute_dag=[source, root])
    (state,) = ansor.sample_programs(task, 1, np.random.default_rng(0))
    assert len(state.steps) >= 60
    assert np.isfinite(extract(task, [state]).values).all()
    built = ansor.build(state, [source, root])
    squares = np.arange(1, 9, dtype=np.float32)
    np.testing.assert_allclose(built(squares), np.sqrt(squares), rtol=1e-6)


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
