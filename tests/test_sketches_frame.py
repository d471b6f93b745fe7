"""What a population knows of its bounds is what inferring them anew says, however it came to know them."""

from __future__ import annotations

import numpy as np
import pytest

from ansor.schedule.bounds import Bounds, infer_bounds
from ansor.schedule.state import State
from ansor.schedule.steps import StoreConvertedStep
from costmodel.extract import extract
from sketches import Population, ProgramSpace
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
