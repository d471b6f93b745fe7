"""Choices with a constant first are those of the opposite condition: padding, whichever way it is written."""

from __future__ import annotations

import numpy as np
import pytest

from ansor import te
from ansor.ir.interp import run_nest
from ansor.ir.registers import RegisterLimits
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.inlining import effective_body
from ansor.schedule.lowering import lower
from ansor.schedule.skipping import needed_parts
from ansor.schedule.state import State
from ansor.te.expr import Const, Expr, Select
from ansor.te.tensor import Tensor
from costmodel.extraction.extract import extract
from sketches import ProgramSpace
from tests.costmodel_executed import products_made
from tests.paths import walk
from tests.program_laws import check_results
from tests.sketches_cases import task_of

FORMS = ("inside", "outside", "not outside", "not inside")


def chosen(form: str, inside: list[Expr], outside: list[Expr], value: Expr, other: float) -> Expr:
    """`value` inside, `other` outside."""
    match form:
        case "inside":
            return te.if_then_else(te.all(*inside), value, other)
        case "outside":
            return te.if_then_else(te.any(*outside), other, value)
        case "not outside":
            return te.if_then_else(te.logical_not(te.any(*outside)), value, other)
        case _:
            return te.if_then_else(te.logical_not(te.all(*inside)), other, value)


def convolution(form: str, size: int = 7, channels: int = 4) -> list[Tensor]:
    x = te.placeholder((size, size, channels), name="X")
    weights = te.placeholder((3, 3, channels, channels), name="W")

    def element(h: Expr, w: Expr, c: Expr) -> Expr:
        inside = [h >= 1, h < size + 1, w >= 1, w < size + 1]
        outside = [h < 1, h >= size + 1, w < 1, w >= size + 1]
        return chosen(form, inside, outside, x[h - 1, w - 1, c], 0.0)

    padded = te.compute((size + 2, size + 2, channels), element, name="Pad")
    r, s, k = (te.reduce_axis((0, extent), name) for name, extent in (("r", 3), ("s", 3), ("k", channels)))
    y = te.compute(
        (size, size, channels),
        lambda h, w, c: te.sum(padded[h + r, w + s, k] * weights[r, s, k, c], axis=[r, s, k]),
        name="Y",
    )
    return [x, weights, y]


def inlined(tensors: list[Tensor]) -> State:
    state = State.initial(ComputeDAG(tensors))
    return state.compute_inline(next(i for i, one in enumerate(state.stages) if one.op.name == "Pad"))


@pytest.mark.parametrize("form", FORMS[1:])
def test_padding_is_left_out_of_a_convolution(form: str) -> None:
    usual, other = inlined(convolution("inside")), inlined(convolution(form))
    limits = RegisterLimits(256, 16)
    assert str(lower(other, limits=limits)) == str(lower(usual, limits=limits))
    assert products_made(lower(other, limits=limits)) == (7 * 3 - 2) ** 2 * 4 * 4
    op = other.stages[-1].compute
    parts = needed_parts(effective_body(other, len(other.stages) - 1)[0], (*op.axis, *op.reduce_axis))
    assert [part.share for part in parts] == pytest.approx([19 / 21] * 2)
    check_results(other)


@pytest.mark.parametrize("form", FORMS[1:])
def test_the_search_takes_either_form_for_padding(form: str) -> None:
    usual, other = (task_of(convolution(one, 14, 32)) for one in ("inside", form))
    spaces = [ProgramSpace.of(task, {}) for task in (usual, other)]
    steps, expected = ([[str(x) for x in one.state.steps] for one in space.sketches] for space in spaces)
    assert steps == expected
    populations = [space.sample(16, np.random.default_rng(5)).in_order() for space in spaces]
    states = [[one.materialize(row) for one, row in found] for found in populations]
    features = [extract(task, found) for task, found in zip((usual, other), states, strict=True)]
    assert np.array_equal(features[0].values, features[1].values)


@pytest.mark.parametrize("form", FORMS)
def test_a_maximum_passes_over_what_is_below_everything(form: str) -> None:
    x, k = te.placeholder((6,), name="X"), te.reduce_axis((0, 8), name="k")
    term = chosen(form, [k >= 1, k < 7], [k < 1, k >= 7], x[k - 1], -np.inf)
    op = te.compute((1,), lambda i: te.max(term, axis=k), name="Y").op
    root = effective_body(State.initial(ComputeDAG([x, op.output(0)])), 1)[0]
    assert [part.share for part in needed_parts(root, (*op.axis, *op.reduce_axis))] == [6 / 8]


def test_a_constant_that_is_inlined_may_come_first() -> None:
    x, k = te.placeholder((6,), name="X"), te.reduce_axis((0, 6), name="k")
    nothing = te.compute((6,), lambda i: te.const(0.0, "float32"), name="Nothing")
    y = te.compute((1,), lambda i: te.sum(te.select(k < 2, nothing[k], x[k]), axis=k), name="Y")
    state = State.initial(ComputeDAG([x, y]))
    state = state.compute_inline(next(i for i, one in enumerate(state.stages) if one.op.name == "Nothing"))
    op = y.op
    root = effective_body(state, len(state.stages) - 1)[0]
    assert [part.share for part in needed_parts(root, (*op.axis, *op.reduce_axis))] == [4 / 6]


def test_what_is_no_number_is_on_the_same_side_as_before() -> None:
    """Neither is it less than zero nor is it not less: the opposite of a comparison is no comparison."""
    x, i = te.placeholder((6,), name="X"), np.arange(6)
    values = np.array([-1, 0, np.nan, 2, np.nan, -3], np.float32)
    conditions = {
        "less": (lambda i: x[i] < 0.0, values < 0),
        "one of several": (lambda i: te.any(x[i] < 0.0, i >= 4, x[i] == 2.0), (values < 0) | (i > 2)),
        "not": (lambda i: te.logical_not(x[i] < 0.0), ~(values < 0)),
        "neither": (lambda i: te.logical_not(te.any(x[i] < 0.0, i > 2)), ~((values < 0) | (i > 2))),
    }
    for name, (cond, held) in conditions.items():
        y = te.compute((6,), lambda i, cond=cond: te.if_then_else(cond(i), 7.0, x[i]), name="Y")
        state = State.initial(ComputeDAG([x, y]))
        body = effective_body(state, 1)[0]
        assert all(isinstance(node.other, Const) for node in walk(body) if isinstance(node, Select)), name
        result = np.zeros(6, np.float32)
        run_nest(lower(state), [values, result])
        np.testing.assert_array_equal(result, np.where(held, np.float32(7), values), err_msg=name)
