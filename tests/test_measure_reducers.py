"""Reducers whose result depends on the order: found by trying, and named where an answer is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import ansor
from ansor import te
from ansor.schedule.dag import ComputeDAG
from measure import MeasureErrorNo, MeasureInput, ProgramMeasurer
from measure.correctness.reducers import order_dependence

N = 64


def first_wins(a: Any, b: Any) -> Any:
    return te.select(b[1] > a[1], b[0], a[0]), te.maximum(a[1], b[1])


def lower_index_wins(a: Any, b: Any) -> Any:
    later = te.any(b[1] > a[1], te.all(b[1] == a[1], b[0] < a[0]))
    return te.select(later, b[0], a[0]), te.maximum(a[1], b[1])


def argmax(combine: Callable[[Any, Any], Any]) -> list[te.Tensor]:
    reducer = te.comm_reducer(
        combine, lambda index, value: (te.max_value(index), te.min_value(value)), name="argmax"
    )
    x = te.placeholder((N, N), "int32", name="X")
    k = te.reduce_axis((0, N), name="k")
    at, best = te.compute((N,), lambda i: reducer((te.cast(k, "int32"), x[i, k]), axis=k), name="at")
    return [x, at, best]


def scalar(combine: Callable[[Any, Any], Any], dtype: str = "float32") -> list[te.Tensor]:
    reducer = te.comm_reducer(combine, lambda dtype: te.const(0, dtype), name="mine")
    x = te.placeholder((4, N), dtype, name="X")
    k = te.reduce_axis((0, N), name="k")
    return [x, te.compute((4,), lambda i: reducer(x[i, k], axis=k), name="y")]


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (argmax(first_wins), r"'argmax' depends on the order.*fcombine\(\(.*decide ties by the values"),
        (argmax(lower_index_wins), None),
        (scalar(lambda a, b: a - b), r"'mine' depends on the order.*fcombine\(\d, \d\) is -?\d, but"),
        (scalar(lambda a, b: (a + b) * 0.5), r"fcombine\(fcombine\(.*, .*\), .*\) is"),
        (scalar(lambda a, b: a + b), None),
        (scalar(lambda a, b: a * b, "bfloat16"), None),
        (scalar(lambda a, b: te.maximum(a, b), "uint8"), None),
    ],
)
def test_what_depends_on_the_order_is_found(tensors: list[te.Tensor], reason: str | None) -> None:
    found = order_dependence(ComputeDAG(tensors))
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(reason, found), found


def test_a_wrong_answer_names_the_reducer() -> None:
    """Even columns come before odd ones, so another of several equal values is the first."""
    tensors = argmax(first_wins)
    task = ansor.SearchTask(compute_dag=tensors)
    dag = task.compute_dag
    stage = dag.ops.index(dag.tensors[1].op)
    state = ansor.State.initial(dag).split(stage, 1, [2]).reorder(stage, [0, 2, 1])
    with ansor.LocalRunner(number=1, min_repeat_ms=0) as runner, ansor.LocalBuilder() as builder:
        (result,) = ProgramMeasurer(builder, runner).measure([MeasureInput(task, state)])
    assert result.error_no is MeasureErrorNo.WRONG_ANSWER, result
    assert "the reducer 'argmax' depends on the order of its elements" in result.error_msg
