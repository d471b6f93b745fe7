"""A search measures what a user's annotators allow and a user's mutations make, in spaces of any size."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.errors import DefinitionError
from ansor.schedule.stages import Annotation
from ansor.schedule.state import State
from ansor.schedule.steps import PragmaStep
from search import SearchTask, SketchPolicy
from sketches import ColumnKind, Population
from sketches.annotators import Draft
from sketches.family import Family
from sketches.sample import ProgramSpace
from tests.search_fakes import TileModel, logged, options
from tests.sketches_cases import matmul

SIZES = {"searched": (24, 32, 48), "listed": (1, 2, 3)}
HOST = "llvm -num-cores=2"
POPULATIONS = {"searched": 128, "listed": 2048}
"""A space is listed that a population would hold."""


def task_of(size: tuple[int, int, int]) -> SearchTask:
    return SearchTask(compute_dag=matmul(*size), target=HOST)


class Only(ansor.Annotator):
    """Allows these values in the columns of one kind."""

    def __init__(self, kind: ColumnKind, *values: Any) -> None:
        self.kind, self.values = kind, values

    def choices(self, family: Family) -> Mapping[int, Sequence[int]]:
        return dict.fromkeys(family.positions(self.kind), self.values)


class Unroll7(ansor.Mutation):
    """Unrolls up to 7 steps, which no list has."""

    name = "seven"

    def propose(self, parents: Population, neighbourhood: Any, rng: np.random.Generator) -> Any:
        values = parents.values.copy()
        values[:, list(parents.family.positions(ColumnKind.UNROLL))] = 7
        return ansor.same_family(parents, values, (values != parents.values).any(axis=1))


def measured(size: str, log: Path, **parts: Any) -> list[State]:
    """Programs that a search of three rounds measures, polish and mutation included."""
    task = task_of(SIZES[size])
    params = {
        "evolutionary_search_population": POPULATIONS[size],
        "evolutionary_search_num_iters": 1,
        "polish_after": 8,
    }
    policy = SketchPolicy(task, TileModel(), params, seed=3, **parts)
    assert (policy.all_programs is not None) == (size == "listed")
    task.tune(options(40, log), policy)
    assert len(logged(log, task)) >= 8
    return [inp.state.replay(task.compute_dag) for inp, _ in ansor.load_records(log)]


def unroll_limits(states: Sequence[State]) -> set[int]:
    pragmas = [step.text for state in states for step in state.steps if isinstance(step, PragmaStep)]
    return {int(pragma.partition("$")[2]) for pragma in pragmas}


def annotations(states: Sequence[State]) -> set[Annotation]:
    stages = [stage for state in states for stage in state.stages]
    return {loop.annotation for stage in stages for loop in stage.iterators}


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[Annotation]]:
    """What a search of each size makes of loops without annotators of one's own."""
    folder = tmp_path_factory.mktemp("usual")
    return {size: annotations(measured(size, folder / f"{size}.json")) for size in SIZES}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("limits", [(64,), (32, 128)])
def test_only_the_unroll_limits_of_an_annotator_are_measured(
    size: str, limits: tuple[int, ...], tmp_path: Path
) -> None:
    own = Only(ColumnKind.UNROLL, *limits)
    states = measured(size, tmp_path / "log.json", annotators=[*ansor.CPU_ANNOTATORS, own])
    assert (
        unroll_limits(states) == set(limits) if size == "searched" else unroll_limits(states) <= set(limits)
    )


def test_the_list_of_a_small_space_has_what_an_annotator_allows() -> None:
    own = Only(ColumnKind.UNROLL, 32, 128)
    policy = SketchPolicy(task_of(SIZES["listed"]), annotators=[*ansor.CPU_ANNOTATORS, own])
    assert policy.all_programs is not None
    limits = {
        int(value)
        for population in policy.all_programs
        for at in population.family.positions(ColumnKind.UNROLL)
        for value in population.values[:, at]
    }
    assert limits == {32, 128}


@pytest.mark.parametrize(
    ("size", "kind", "absent"),
    [
        ("listed", ColumnKind.PARALLEL, Annotation.PARALLEL),
        ("searched", ColumnKind.PARALLEL, Annotation.PARALLEL),
        ("searched", ColumnKind.VECTORIZE, Annotation.VECTORIZE),
    ],
)
def test_an_annotator_can_leave_loops_serial_or_scalar(
    usual: dict[str, set[Annotation]], size: str, kind: ColumnKind, absent: Annotation, tmp_path: Path
) -> None:
    assert absent in usual[size]
    states = measured(size, tmp_path / "log.json", annotators=[*ansor.CPU_ANNOTATORS, Only(kind, 0)])
    assert absent not in annotations(states)


def test_choices_that_no_tile_allows_give_way() -> None:
    """Loops that may not be vectors, in some rows, are none; in the others they are as many as wished."""
    own = Only(ColumnKind.VECTORIZE, 1)
    space = ProgramSpace.of(task_of((24, 32, 48)), annotators=[*ansor.CPU_ANNOTATORS, own])
    found: set[int] = set()
    for population in space.sample(200, np.random.default_rng(0)).populations:
        found.update(population.values[:, list(population.family.positions(ColumnKind.VECTORIZE))].flat)
    assert found == {0, 1}


def test_the_last_annotator_that_names_a_column_has_its_way() -> None:
    first, last = Only(ColumnKind.UNROLL, 1), Only(ColumnKind.UNROLL, 2)
    space = ProgramSpace.of(task_of((24, 32, 48)), annotators=[first, *ansor.CPU_ANNOTATORS, last])
    for population in space.sample(20, np.random.default_rng(0)).populations:
        unrolled = population.values[:, list(population.family.positions(ColumnKind.UNROLL))]
        assert set(unrolled.ravel().tolist()) == {2}


def test_an_annotator_that_only_draws_says_where_new_programs_begin() -> None:
    class Draws(ansor.Annotator):
        def draw(self, draft: Draft, rng: np.random.Generator) -> None:
            draft.values[:, list(draft.family.positions(ColumnKind.UNROLL))] = 5

    space = ProgramSpace.of(task_of((24, 32, 48)), annotators=[*ansor.CPU_ANNOTATORS, Draws()])
    for population in space.sample(20, np.random.default_rng(0)).populations:
        assert not population.family.choices
        assert set(population.values[:, list(population.family.positions(ColumnKind.UNROLL))].flat) == {5}


@pytest.mark.parametrize(
    ("annotator", "message"),
    [
        (
            Only(ColumnKind.TILE, 4),
            "annotator Only was asked for its choices and named column 0; annotations",
        ),
        (
            Only(ColumnKind.VECTORIZE, 1, 99),
            "named [1, 99] for column 'vectorize C'; name one value or more, 0",
        ),
        (Only(ColumnKind.UNROLL, -1), "named [-1] for column 'unroll C'; name one value or more, at least 0"),
        (Only(ColumnKind.UNROLL), "named [] for column 'unroll C'"),
    ],
)
def test_choices_that_a_column_cannot_take_are_refused(annotator: Only, message: str) -> None:
    space = ProgramSpace.of(task_of((24, 32, 48)), annotators=[*ansor.CPU_ANNOTATORS, annotator])
    with pytest.raises(DefinitionError, match=re.escape(message)):
        space.sample(8, np.random.default_rng(0))


@pytest.mark.parametrize("size", SIZES)
def test_what_a_mutation_makes_is_measured(size: str, tmp_path: Path) -> None:
    mutations = [(Unroll7(), 5.0), *ansor.CPU_MUTATIONS]
    assert 7 in unroll_limits(measured(size, tmp_path / "log.json", mutations=mutations))
