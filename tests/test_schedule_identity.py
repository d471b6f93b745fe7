"""Programs have equal keys only if they are the same program."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import ansor
from ansor import te
from ansor.schedule.dag import ComputeDAG
from ansor.schedule.identity import program_key
from ansor.schedule.state import State
from ansor.schedule.steps import SetScopeStep, StoreConvertedStep
from sketches import ProgramSpace
from sketches.locate import locate
from sketches.neighbours import Neighbourhood
from tests.sketches_cases import padded_conv1d, task_of


def two_readers() -> State:
    x = te.placeholder((8,), name="x")
    a = te.compute((8,), lambda i: x[i] + 1.0, name="a")
    b = te.compute((8,), lambda i: x[i] * 2.0, name="b")
    return State.initial(ComputeDAG([x, a, b]))


def transposed() -> State:
    x = te.placeholder((8, 8), name="x")
    a = te.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="a")
    return State.initial(ComputeDAG([x, te.compute((8, 8), lambda i, j: a[j, i] * 2.0, name="b")]))


def rows() -> State:
    x, k = te.placeholder((4, 6, 8), name="x"), te.reduce_axis((0, 8), name="k")
    y = te.compute((4, 6), lambda i, j: te.sum(x[i, j, k], axis=k), name="y")
    return State.initial(ComputeDAG([x, y])).split(1, 2, (4,))


def factored(at: int) -> State:
    """The partial sums are stored in an order of axes that follows, and computed in one that does not."""
    state = rows().rfactor(1, 3, at)
    first, second = (axis for axis in range(3) if axis != at)
    return state.reorder(1, [first, second, at, 3])


def test_what_loops_do_not_show_makes_another_program() -> None:
    """Who reads a copy, how rows are padded, where results are kept, and in which order of axes."""
    pairs = [
        [two_readers().cache_read(0, "local", [reader]) for reader in (1, 2)],
        [transposed().storage_align(1, 0, factor, 1) for factor in (16, 32)],
        [transposed().storage_align(1, axis, 16, 1) for axis in (0, 1)],
        [transposed().apply(SetScopeStep(1, scope)) for scope in ("local", "shared")],
        [factored(at) for at in (0, 2)],
    ]
    for one, other in pairs:
        assert str(one.with_bounds()) == str(other.with_bounds())
        assert nest(one) != nest(other)
        assert program_key(one) != program_key(other)


def test_how_far_a_part_that_was_split_again_strides_makes_another_program() -> None:
    x = te.placeholder((20,), name="x")
    whole = State.initial(ComputeDAG([x, te.compute((20,), lambda i: x[i] + 1.0, name="y")]))
    twice = [whole.split(1, 0, (length,)).split(1, 1, (3,)) for length in (7, 8, 9)]
    assert len({str(state.with_bounds()) for state in twice}) == 1
    assert len({nest(state) for state in twice}) == 3
    assert len({program_key(state) for state in twice}) == 3


def test_an_outer_part_that_was_split_again_does_not_stride() -> None:
    x = te.placeholder((20,), name="x")
    whole = State.initial(ComputeDAG([x, te.compute((20,), lambda i: x[i] + 1.0, name="y")]))
    twice = [whole.split(1, 0, (parts,), False).split(1, 0, (8,)) for parts in (14, 15)]
    assert nest(twice[0]) == nest(twice[1])
    assert program_key(twice[0]) == program_key(twice[1])


def nest(state: State) -> str:
    return str(ansor.lower(state, name="f", simple_mode=True))


def test_a_graph_made_again_has_programs_of_the_same_keys() -> None:
    """As by every process that reads a log."""
    assert program_key(two_readers()) == program_key(two_readers())
    assert program_key(factored(0)) == program_key(factored(0))


def test_a_program_that_keeps_something_otherwise_is_not_taken_for_a_row() -> None:
    """No sketch says where the padded row is kept, or in which dtype, and no loop shows it."""
    space = ProgramSpace.of(task_of(padded_conv1d(12, 4, 6, "float16")))
    neighbourhood = Neighbourhood(space)
    changes: list[Callable[[int], SetScopeStep | StoreConvertedStep]] = [
        lambda stage: SetScopeStep(stage, "local"),
        StoreConvertedStep,
    ]
    sample = space.sample(40, np.random.default_rng(0))
    tried = 0
    for population, row in sample.in_order():
        state = population.materialize(row)
        stage = state.stage_id("Pad")
        if state.stages[stage].compute_at == "inlined" or any(
            isinstance(step, StoreConvertedStep) for step in state.steps
        ):
            continue
        assert locate(neighbourhood, state) is not None
        for change in changes:
            assert locate(neighbourhood, state.apply(change(stage))) is None
        tried += 1
    assert tried


def test_stages_of_one_name_are_told_apart() -> None:
    x, y = te.placeholder((8, 8), name="X"), te.placeholder((8, 8), name="Y")
    one = te.compute((8, 8), lambda i, j: te.exp(x[i, j]), name="T")
    other = te.compute((8, 8), lambda i, j: te.tanh(y[i, j]), name="T")
    out = te.compute((8, 8), lambda i, j: one[i, j] + other[i, j], name="O")
    state = State.initial(ComputeDAG([x, y, out]))
    first, second = (stage for stage, known in enumerate(state.stages) if known.name == "T")
    assert program_key(state.compute_inline(first)) != program_key(state.compute_inline(second))
    assert program_key(state.compute_inline(first)) == program_key(state.compute_inline(first))
