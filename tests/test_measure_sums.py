"""Sums whose rounding errors do not cancel: whatever an order of additions gives is right, and no more."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.codegen.machine import Machine
from ansor.dtypes import to_numpy
from ansor.errors import LoweringError, RunError
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.state import State
from ansor.task.target import Target
from ansor.task.task import Task
from ansor.te.interp import evaluate
from ansor.te.tensor import Tensor
from measure import LocalBuilder, LocalRunner, MeasureErrorNo, MeasureInput, MeasureResult, WorkerPool
from measure.correctness.plain import iteration_points, trivial_state
from measure.correctness.reference import INTERPRETED_POINTS, ReferenceStore
from measure.correctness.sums import summed_dtypes, widened
from measure.emit import ENTRY, EmittedProgram, emit_program
from measure.workers.check import Tolerance, mismatch


def squares(rows: int, terms: int, dtype: str) -> ComputeDAG:
    a = te.placeholder((rows, terms), dtype, name="A")
    k = te.reduce_axis((0, terms), name="k")
    return ComputeDAG([a, te.compute((rows,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="B")])


def equal_terms(rows: int, terms: int, scaled: bool = False) -> ComputeDAG:
    a = te.placeholder((rows,), name="A")
    k = te.reduce_axis((0, terms), name="k")
    share = te.const(1.0 / terms, "float32")
    b = te.compute((rows,), lambda i: te.sum(a[i] * share, axis=k), name="B")
    return ComputeDAG([a, te.compute((rows,), lambda i: b[i] * 2.0, name="C") if scaled else b])


def in_parts(dag: ComputeDAG, parts: int) -> State:
    """The sum in so many parts, each one by one."""
    state = State.initial(dag)
    state = state.split(1, 1, [parts])
    return state.rfactor(1, 2, 1)


def measured(builder: LocalBuilder, runner: LocalRunner, task: Task, *states: State) -> list[MeasureResult]:
    inputs = [MeasureInput(task, state) for state in states]
    return runner.run(inputs, builder.build(inputs))


def task_of(dag: ComputeDAG, name: str) -> Task:
    return Task.create(dag, f'["{name}"]', "llvm")


@pytest.mark.parametrize(
    ("dtype", "terms"), [("bfloat16", 4096), ("bfloat16", 40_000), ("float16", 30_000), ("float32", 4096)]
)
@pytest.mark.parametrize("rows", [8, 64])
def test_any_order_of_a_long_sum_of_one_sign_is_right(
    builder: LocalBuilder, runner: LocalRunner, dtype: str, terms: int, rows: int
) -> None:
    dag = squares(rows, terms, dtype)
    task = task_of(dag, f"squares {rows} {terms} {dtype}")
    results = measured(builder, runner, task, in_parts(dag, 64), State.initial(dag), in_parts(dag, 16))
    assert [result.error_msg for result in results] == ["", "", ""]
    assert runner.references.get(task).compiled == (iteration_points(dag) > INTERPRETED_POINTS)


@pytest.mark.parametrize("rows", [64, 2048])
def test_equal_terms_are_rounded_to_one_side(
    builder: LocalBuilder, runner: LocalRunner, rows: int, caplog: pytest.LogCaptureFixture
) -> None:
    dag = equal_terms(rows, 20_000, scaled=rows > 64)
    task = task_of(dag, f"equal terms {rows}")
    with caplog.at_level(logging.WARNING):
        results = measured(builder, runner, task, State.initial(dag), in_parts(dag, 500))
    assert [result.error_msg for result in results] == ["", ""]
    assert runner.references.get(task).compiled == (iteration_points(dag) > INTERPRETED_POINTS)
    assert not caplog.records  # Nobody fell back to the interpreter.


def test_what_no_order_gives_stays_wrong(builder: LocalBuilder, runner: LocalRunner) -> None:
    """A product of another graph in the place of the program: twice what all terms come to."""
    dag, terms = squares(64, 4096, "bfloat16"), 4096
    task = task_of(dag, "squares, and more")
    good = measured(builder, runner, task, in_parts(dag, 64))
    assert good[0].ok, good
    a = te.placeholder((64, terms), "bfloat16", name="A")
    k = te.reduce_axis((0, 4 * terms), name="k")
    more = ComputeDAG(
        [a, te.compute((64,), lambda i: te.sum(a[i, k % terms] * a[i, k % terms], axis=k), name="B")]
    )
    build = builder.build([MeasureInput(task_of(more, "more"), in_parts(more, 256))])
    (result,) = runner.run([MeasureInput(task, State.initial(dag))], build)
    assert result.error_no is MeasureErrorNo.WRONG_ANSWER
    assert "in other orders up to" in result.error_msg


def test_the_second_answer_is_sought_once(
    builder: LocalBuilder, runner: LocalRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = squares(8, 100, "float32")
    task = task_of(dag, "squares, once")
    assert measured(builder, runner, task, State.initial(dag))[0].ok
    store = runner.references
    assert not store.reconsider(task, None)
    assert store.get(task).settled
    monkeypatch.setattr(ReferenceStore, "_others", None)
    assert not store.reconsider(task, None)
    assert not ReferenceStore().reconsider(task, None)  # It was never asked for there.


def test_a_refused_reference_leaves_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def emit_nothing(state: State, tensors: object, target: object) -> EmittedProgram:
        text = f"define void @{ENTRY}(ptr %a, ptr %b) {{\n  ret void\n}}\n"
        return EmittedProgram(text, ENTRY, Machine.host().to_json())

    monkeypatch.setattr("measure.correctness.plain.emit_program", emit_nothing)
    store = ReferenceStore()
    with WorkerPool(1) as pool, pytest.raises(LoweringError, match="contradicts the interpreter"):
        store.get(task_of(squares(64, 40_000, "float32"), "nothing"), pool)
    assert list(Path(store.make_folder("x")).parent.glob("*.bin*")) == []


def test_a_plain_program_that_is_wrong_is_no_matter_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves out half of the terms, where the one with wider sums does not."""
    made: list[str] = []

    def emit(state: State, tensors: Sequence[Tensor], target: Target) -> EmittedProgram:
        dag = squares(64, 40_000, "float32") if made else squares_of_half(64, 40_000)
        if made:
            dag = widened(dag)
        made.append(str(dag))
        return emit_program(trivial_state(dag), dag.tensors, target)

    monkeypatch.setattr("measure.correctness.plain.emit_program", emit)
    with WorkerPool(1) as pool, pytest.raises(LoweringError, match="contradicts the interpreter"):
        ReferenceStore().get(task_of(squares(64, 40_000, "float32"), "half"), pool)


def squares_of_half(rows: int, terms: int) -> ComputeDAG:
    a = te.placeholder((rows, terms), name="A")
    k = te.reduce_axis((0, terms // 2), name="k")
    return ComputeDAG([a, te.compute((rows,), lambda i: te.sum(a[i, k] * a[i, k], axis=k), name="B")])


def test_an_answer_that_is_given_up_leaves_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roots of numbers of both signs are tried first, and then those of positive ones."""
    a = te.placeholder((40,), name="A")
    task = task_of(ComputeDAG([a, te.compute((40,), lambda i: te.sqrt(a[i]), name="B")]), "roots")
    compute, calls = ReferenceStore._compute, iter((True, False))

    def once(store: ReferenceStore, *rest: Any) -> Any:
        if next(calls):
            return compute(store, *rest)
        raise MemoryError("no room")

    monkeypatch.setattr(ReferenceStore, "_compute", once)
    store = ReferenceStore()
    with pytest.raises(RunError, match="no room"):
        store.get(task)
    assert list(Path(store.make_folder("x")).parent.glob("*.bin*")) == []


def test_between_two_ends() -> None:
    low, high = np.array([1.0, -3.0, 5.0, np.nan, 2.0, np.inf]), np.array([2.0, -8.0, 5.0, 4.0, 2.0, 7.0])
    low, high = low.astype("f"), high.astype("f")

    def wrong(*values: float) -> str | None:
        return mismatch(np.array(values, "f"), low, "float32", Tolerance(1e-3, 0.0), high)

    assert wrong(1.5, -5, 5, 4, 2, 9) is None
    assert wrong(2, -8, 5.001, 4, 2, np.inf) is None
    for place, value in enumerate([2.1, -2.9, 5.1, 4.1, np.nan, 6.9]):
        values = [1.5, -5, 5, 4, 2, 9]
        values[place] = value
        assert f"1 of 6 elements are wrong, first [{place}]" in str(wrong(*values))


def test_wider_sums_keep_everything_else() -> None:
    """Sums, products, rows of their own, several outputs, and a combiner of one's own."""
    a = te.placeholder((5, 300), "bfloat16", name="A")
    k = te.reduce_axis((0, 300), name="k")
    m = te.reduce_axis((0, 300), name="m")
    total = te.compute((5,), lambda i: te.sum(a[i, k], axis=k, where=k < 299), name="T")
    largest = te.compute((5,), lambda i: te.max(a[i, m], axis=m), name="M")
    both = te.compute((5,), lambda i: (total[i] + largest[i], total[i] * largest[i]), name="P")
    dag = ComputeDAG([a, total, *both])
    wide = widened(dag)
    assert summed_dtypes(dag) == {"bfloat16"}
    assert summed_dtypes(wide) == {"float32"}
    assert [t.dtype for t in wide.tensors] == [t.dtype for t in dag.tensors]
    data = np.abs(np.random.default_rng(0).standard_normal((5, 300))).astype(to_numpy("bfloat16"))
    found = list(evaluate([t for t in wide.tensors if t not in dag.inputs], {a: data}).values())
    exact = data[:, :299].astype("f").sum(1)
    assert np.allclose(found[0].astype("f"), exact, rtol=2.0**-8)
    assert np.allclose(found[1].astype("f"), exact + data.max(1).astype("f"), rtol=2.0**-6)
    narrow = evaluate(dag.outputs, {a: data})[total]
    assert np.abs(narrow.astype("f") - exact).max() > np.abs(found[0].astype("f") - exact).max()


def test_tensors_of_wider_sums_are_the_same_inputs() -> None:
    dag = squares(4, 16, "float16")
    inputs: list[Tensor] = list(widened(dag).inputs)
    assert inputs == list(dag.inputs)
