"""Axes that are called as steps call the loops that they make: every loop still has a name of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.naming import code_names
from ansor.schedule.source import schedule_code
from ansor.schedule.state import State
from ansor.te.tensor import ComputeOp, Tensor
from costmodel.extraction.extract import extract
from sketches import ProgramSpace
from sketches.locations import places
from tests.program_laws import Case, check_all, lowered
from tests.sketches_cases import check_program, task_of

Steps = Callable[[State], State]

HOSTILE = [("c", "n.0", "b"), ("c", "o.1", "y.2"), ("o_c", "x@", "y.0"), ("x_o", "x.0.0", "n@o@y@")]


def row_sums(i: str, k: str, columns: int = 5) -> ComputeDAG:
    """Sums over the axis `k` of rows along the axes `i` and `j`."""
    A = te.placeholder((8, columns, 6), name="A")
    axis = te.reduce_axis((0, 6), name=k)
    names: dict[str, Any] = {}
    exec(f"def rows({i}, j): return source({i}, j)", names)
    names["source"] = lambda i, j: te.sum(A[i, j, axis], axis=axis)
    return ComputeDAG([A, te.compute((8, columns), names["rows"], name="C")])


def grouped_convolution(names: tuple[str, str, str]) -> list[Tensor]:
    X = te.placeholder((1, 4, 9, 9), name="X")
    W = te.placeholder((8, 2, 3, 3), name="W")
    c, a, b = (te.reduce_axis((0, n), name=name) for n, name in zip((2, 3, 3), names, strict=True))

    def point(n: Any, o: Any, y: Any, x: Any) -> Any:
        return te.sum(X[n, o // 4 * 2 + c, y + a, x + b] * W[o, c, a, b], axis=[c, a, b])

    attrs = {"layout_free_placeholders": [W]}
    return [X, W, te.compute((1, 8, 7, 7), point, name="Y", attrs=attrs)]


def names_of(state: State, stage: int) -> list[str]:
    return [loop.name for loop in state.stages[stage].iterators]


@pytest.mark.parametrize(
    ("axes", "steps", "loops"),
    [
        (("i", "i.0"), lambda s: s.split(1, 0, [2]), ["i.0_", "i.1", "j", "i.0"]),
        (("i", "i.1"), lambda s: s.split(1, 0, [2]), ["i.0", "i.1_", "j", "i.1"]),
        (("i", "i.0_"), lambda s: s.split(1, 0, [2]), ["i.0", "i.1", "j", "i.0_"]),
        (("i", "i.0.1"), lambda s: s.split(1, 0, [4]).split(1, 0, [2]), None),
        (("i", "i.0"), lambda s: s.split(1, 2, [2]).split(1, 0, [2]), None),
        (("i", "i@j@"), lambda s: s.fuse(1, [0, 1]), ["i@j@_", "i@j@"]),
        (("i", "i@"), lambda s: s.fuse(1, [0]), ["i@_", "j", "i@"]),
        (("i", "i_c"), lambda s: s.cache_write(1, "local"), ["i_c_", "j_c", "i_c"]),
        (("i", "j_c"), lambda s: s.cache_write(1, "local").split(1, 1, [2]), None),
        (("k_o", "k"), lambda s: s.split(1, 2, [2]).rfactor(1, 2, 0), ["k_o_", "k_o", "j", "k_i"]),
        (("k_i", "k"), lambda s: s.split(1, 2, [2]).rfactor(1, 2, 0), ["k_o", "k_i", "j", "k_i_"]),
        (("k_u", "k"), lambda s: s.rfactor(1, 2, 0), ["k", "k_u", "j", "k_u_"]),
        (("i_0", "i.0"), lambda s: s.rfactor(1, 2, 1), ["i_0", "i_0_", "j", "i_0__u"]),
    ],
)
def test_steps_make_names_that_no_other_loop_has(
    axes: tuple[str, str], steps: Steps, loops: list[str] | None
) -> None:
    state = steps(State.initial(row_sums(*axes)))

    if loops is not None:
        assert names_of(state, 1) == loops
    for stage in state.stages:
        found = [loop.name for loop in stage.iterators]
        assert len(set(found)) == len(found)
    check_all(Case.of(state))


def test_names_in_schedule_code_differ_too() -> None:
    state = State.initial(row_sums("i_o", "i.0")).split(1, 0, [2]).split(1, 3, [3])

    names = code_names(state.stages[1])
    assert len(set(names.values())) == len(names)


@pytest.mark.parametrize("axis", ["A", "C", "s", "tensors"])
def test_schedule_code_keeps_the_names_of_axes_apart_from_its_own(axis: str) -> None:
    state = State.initial(row_sums(axis, "k")).split(1, 0, [2]).fuse(1, [1, 2])

    check_all(Case.of(state), compiled=False)


def test_an_axis_called_te_is_renamed_in_schedule_code() -> None:
    """The lambda's body needs the module of that name."""
    namespace: dict[str, Any] = {}
    exec(schedule_code(State.initial(row_sums("te", "k")).split(1, 0, [2])), namespace)

    assert namespace["s"].state.stages[1].iterators[0].name == "te_1.0"


def test_a_loop_fused_alone_keeps_its_name_in_schedule_code() -> None:
    state = State.initial(row_sums("i", "k")).fuse(1, [0])

    assert code_names(state.stages[1])["i@"] == "i"


@pytest.mark.parametrize("names", HOSTILE)
def test_sampled_programs_are_right(names: tuple[str, str, str]) -> None:
    task = task_of(grouped_convolution(names))
    rng = np.random.default_rng(0)
    for population, row in ProgramSpace.of(task).sample(12, rng).in_order():
        state = population.materialize(row)
        check_program(state)
        case = Case.of(state)
        case.check_compiled(lowered(state, simple_mode=False))


@pytest.mark.parametrize("names", HOSTILE)
def test_names_change_neither_programs_nor_features(names: tuple[str, str, str]) -> None:
    found = []
    for axes in (("c", "a", "b"), names):
        task = task_of(grouped_convolution(axes))
        sample = ProgramSpace.of(task).sample(12, np.random.default_rng(0))
        steps = [[step.to_json() for step in one.materialize(row).steps] for one, row in sample.in_order()]
        found.append((steps, extract(task, sample.populations).values))

    (steps, features), (same_steps, same_features) = found
    assert same_steps == steps
    assert np.array_equal(same_features, features)


def test_an_axis_is_not_taken_for_the_outermost_part_of_a_split() -> None:
    """Places inside an attached stage leave out outermost tiles, but not an axis that is called like one."""
    A = te.placeholder((8, 8), name="A")
    B = te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((8, 8), lambda i, j: B[i, j] * 2.0, name="C")
    D = te.compute((8, 8), lambda i, j: C[i, j] - 1.0, name="D")
    state = State.initial(ComputeDAG([A, D])).split(3, 0, [2]).compute_at(2, 3, 0)

    assert all(isinstance(stage.op, ComputeOp) for stage in state.stages[1:])
    assert [place.iterator for place in places(state, 1) if place.target == 2] == [0, 1]
    split = state.split(2, 0, [2])
    assert [place.iterator for place in places(split, 1) if place.target == 2] == [1, 2]
