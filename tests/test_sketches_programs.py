"""Sampled programs compute what the expression says: lowered, interpreted, compared with the graph.

Computations are the shared small ones and random chains of operations over small, often odd, sizes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor import te
from ansor.ir.interp import run_nest
from ansor.schedule.access import ALWAYS_UNROLL_ATTR, NO_SPLIT_ATTR
from ansor.schedule.lowering import lower
from ansor.schedule.state import State
from ansor.te import Tensor
from ansor.te.interp import evaluate
from sketches import ProgramSpace, sample_programs
from tests.sketches_cases import SMALL, matmul, task_of

SPACES = {name: ProgramSpace.of(task_of(make())) for name, make in SMALL.items()}


def check_values(states: list[State], seed: int) -> None:
    """Every program gives the graph's values, without races between parallel iterations."""
    dag = states[0].dag
    rng = np.random.default_rng(seed)
    inputs = {t: rng.uniform(-1, 1, [int(s) for s in t.shape]).astype(t.dtype) for t in dag.inputs}
    expected = evaluate(list(dag.outputs), inputs)
    for state in states:
        arrays = [
            inputs[t] if t in inputs else np.full([int(s) for s in t.shape], np.nan, t.dtype)
            for t in dag.tensors
        ]
        run_nest(lower(state), arrays, check_races=True)
        for tensor, array in zip(dag.tensors, arrays, strict=True):
            if tensor in expected:
                np.testing.assert_allclose(
                    array, expected[tensor], rtol=1e-4, atol=1e-4, err_msg=f"{state}\n{state.steps}"
                )


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(SPACES)), st.integers(0, 2**31))
def test_sampled_programs_compute_the_expression(name: str, seed: int) -> None:
    """Prime extents, extents of one, zero rank, reductions, chains: three random programs each."""
    space = SPACES[name]
    task = task_of(SMALL[name]())
    check_values(sample_programs(task, 3, np.random.default_rng(seed), space=space), seed)


def grow(data: st.DataObject, tensors: list[Tensor], last: Tensor, number: int) -> Tensor:
    """One more operation reading `last`, a matrix or a vector."""
    shape = [int(s) for s in last.shape]
    one = te.const(1.0, "float32")
    name = f"T{number}"
    if len(shape) == 1:
        kind = data.draw(st.sampled_from(["vector", "outer"]), label=name)
        if kind == "vector":
            return te.compute(tuple(shape), lambda i: last[i] * last[i] + one, name=name)
        width = data.draw(st.integers(1, 7))
        side = te.placeholder((width,), name=f"P{number}")
        tensors.append(side)
        return te.compute((shape[0], width), lambda i, j: last[i] * side[j], name=name)
    rows, columns = shape
    kinds = ["add", "exp", "transpose", "pad", "sum", "matmul", "bias"]
    kind = data.draw(st.sampled_from(kinds), label=name)
    if kind == "add":
        return te.compute((rows, columns), lambda i, j: last[i, j] + one, name=name)
    if kind == "exp":
        return te.compute((rows, columns), lambda i, j: te.exp(-last[i, j] * last[i, j]), name=name)
    if kind == "transpose":
        return te.compute((columns, rows), lambda i, j: last[j, i], name=name)
    if kind == "pad":
        zero = te.const(0.0, "float32")
        return te.compute(
            (rows + 2, columns),
            lambda i, j: te.if_then_else(te.all(i >= 1, i < rows + 1), last[i - 1, j], zero),
            name=name,
        )
    k = te.reduce_axis((0, columns), name=f"k{number}")
    if kind == "sum":
        return te.compute(
            (rows,), lambda i: te.sum(last[i, k] * te.const(0.25, "float32"), axis=k), name=name
        )
    if kind == "bias":
        side = te.placeholder((columns,), name=f"P{number}")
        tensors.append(side)
        return te.compute((rows, columns), lambda i, j: te.maximum(last[i, j], side[j]), name=name)
    width = data.draw(st.integers(1, 9))
    side = te.placeholder((columns, width), name=f"P{number}")
    tensors.append(side)
    return te.compute((rows, width), lambda i, j: te.sum(last[i, k] * side[k, j], axis=k), name=name)


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_random_chains_compute_the_expression(data: st.DataObject) -> None:
    """One to four random operations in a row, some with further inputs; four random programs each."""
    last = te.placeholder((data.draw(st.integers(1, 9)), data.draw(st.integers(1, 40))), name="X")
    tensors = [last]
    for number in range(data.draw(st.integers(1, 4))):
        last = grow(data, tensors, last, number)
    seed = data.draw(st.integers(0, 2**31))
    states = sample_programs(task_of([*tensors, last]), 4, np.random.default_rng(seed))
    assert len(states) == 4
    check_values(states, seed)


@pytest.mark.parametrize("attribute", [ALWAYS_UNROLL_ATTR, NO_SPLIT_ATTR])
def test_attributes_change_no_values(attribute: str) -> None:
    """Loops kept whole or always unrolled give the same result."""
    task = task_of(matmul(6, 8, 4, **{attribute: ["i"]}))
    check_values(sample_programs(task, 12, np.random.default_rng(7)), 7)


def test_two_outputs_one_read_by_the_other() -> None:
    """Both results leave the program, whatever is done to the first one's stage."""
    x = te.placeholder((5, 6), name="X")
    a = te.compute((5, 6), lambda i, j: x[i, j] * x[i, j], name="A")
    k = te.reduce_axis((0, 6), name="k")
    b = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="B")
    check_values(sample_programs(task_of([x, a, b]), 12, np.random.default_rng(3)), 3)
