"""What a population knows of its bounds is what inferring them anew says, however it came to know them."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.errors import ScheduleError
from ansor.schedule.bounds import Bounds, infer_bounds
from ansor.schedule.state import State
from ansor.schedule.steps import FollowLayoutStep, SplitStep, StoreConvertedStep
from costmodel.extraction.extract import extract
from sketches import Population, ProgramSpace
from sketches.columns import fill_holes
from tests.sketches_cases import SMALL, padded_conv1d, task_of

CASES = SMALL | {"padding of float16": lambda: padded_conv1d(12, 4, 6, "float16")}
NAMES = ["matmul", "matmul of primes", "padding", "padding of float16", "row sum"]


def drawn(name: str, **params: object) -> tuple[Population, ...]:
    space = ProgramSpace.of(task_of(CASES[name]()), params)
    return space.sample(40, np.random.default_rng(2)).populations


def column(value: object, rows: int) -> list[int]:
    return np.broadcast_to(np.asarray(value), (rows,)).tolist()


def extents(bounds: Bounds, rows: int) -> list[tuple[int, str, list[int]]]:
    return [
        (stage, loop, column(extent, rows))
        for stage, known in bounds.stages.items()
        for loop, extent in known.extents.items()
    ]


@pytest.mark.parametrize("params", [{}, {"cpu_packed_read": 2}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_a_frame_with_its_lengths_is_the_replayed_history(name: str, params: dict[str, object]) -> None:
    for population in drawn(name, **params):
        family, rows = population.family, len(population)
        replayed = infer_bounds(State.replay(family.dag, family.fill(population.values)))
        framed = infer_bounds(family.filled(population.values))
        assert extents(framed, rows) == extents(replayed, rows)
        assert framed.state.attach == replayed.state.attach


@pytest.mark.parametrize("params", [{}, {"cpu_packed_read": 2}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_frame_of_a_sketch_with_its_lengths_is_the_replayed_history(
    name: str, params: dict[str, object]
) -> None:
    space = ProgramSpace.of(task_of(CASES[name]()), params)
    for sketch in space.sketches:
        tiles = space.sample_tiles(sketch, 20, np.random.default_rng(3))
        steps = fill_holes(sketch.steps, sketch.holes, list(np.ascontiguousarray(tiles.T)))
        replayed = infer_bounds(State.replay(sketch.state.dag, steps))
        framed = infer_bounds(sketch.frame.filled(steps))
        assert extents(framed, 20) == extents(replayed, 20)
        assert framed.state.attach == replayed.state.attach
        names = [[stage.name for stage in each.state.stages] for each in (framed, replayed)]
        assert names[0] == names[1]


def test_steps_that_need_no_lengths_are_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of packed tiles before what follows the lengths."""
    space = ProgramSpace.of(task_of(CASES["matmul"]()), {"cpu_packed_read": 2})
    first = space.sample(40, np.random.default_rng(2)).populations
    expected = [extents(one.inferred, len(one)) for one in first]
    assert any(one.family.frame is None for one in first)

    def again(step: SplitStep, state: State) -> State:
        raise AssertionError(f"{step} is replayed again")

    monkeypatch.setattr(SplitStep, "apply", again)
    for one, known in zip(first, expected, strict=True):
        anew = Population(one.family, one.values.copy())
        assert extents(anew.inferred, len(anew)) == known
    drawn_again = space.sample(40, np.random.default_rng(2)).populations
    assert [one.values.tolist() for one in drawn_again] == [one.values.tolist() for one in first]


def test_a_step_that_is_illegal_with_some_lengths_is_named() -> None:
    population = next(one for one in drawn("matmul", cpu_packed_read=2) if one.family.frame is None)
    family = population.family
    steps = family.fill(population.values)
    at = next(at for at, step in enumerate(steps) if isinstance(step, FollowLayoutStep))
    steps[at] = FollowLayoutStep(99, 98)
    with pytest.raises(ScheduleError, match=rf"^step {at} "):
        family.sketch.frame.filled(steps[: at + 1])


def test_programs_of_a_family_share_their_operations() -> None:
    population = next(one for one in drawn("matmul") if one.family.frame is not None)
    again = Population(population.family, population.values.copy())
    assert again.bounds.ops == population.bounds.ops


def test_conversions_are_the_same_whatever_the_lengths() -> None:
    families = [one.family for one in drawn("padding of float16", cpu_packed_read=0)]
    converted = [x for x in families if any(isinstance(step, StoreConvertedStep) for step in x.steps)]
    assert converted
    assert all(family.frame is not None for family in converted)


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_were_taken_have_the_bounds_and_features_of_new_ones(name: str) -> None:
    task = task_of(CASES[name]())
    for population in drawn(name):
        population.inferred  # noqa: B018 (known before rows are taken)
        rows = np.arange(len(population))[::-2]
        taken, new = population.take(rows), Population(population.family, population.values[rows])
        assert extents(taken.inferred, len(rows)) == extents(new.inferred, len(rows))
        found, expected = extract(task, taken), extract(task, new)
        np.testing.assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("name", ["matmul", "matmul of primes"])
def test_rows_whose_stages_stay_have_the_bounds_of_their_sketch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is inferred of them beside it, and it is what inferring says."""
    asked: list[State] = []

    def counting(state: State) -> Bounds:
        asked.append(state)
        return infer_bounds(state)

    monkeypatch.setattr("sketches.population.infer_bounds", counting)
    populations = drawn(name, cpu_packed_read=0)
    assert all(one.family.steps == one.family.sketch.steps for one in populations)
    assert not asked
    for one in populations:
        new = Population(one.family, one.values)
        assert extents(one.inferred, len(one)) == extents(new.inferred, len(new))
        assert one.bounds.ops == new.bounds.ops
