"""What users pass or write for the search, and what is said to them when it cannot work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ansor.errors import DefinitionError, ScheduleError
from ansor.task.hardware import HardwareParams
from costmodel import RandomModel
from search import ABLATIONS, Mutation, Offspring, SearchTask, SketchPolicy, TuningOptions
from search.mutations.mutation import offspring_of
from search.params import resolve_params
from sketches import CPU_RULES, Population, ProgramSpace, Verdict, generate_sketches
from sketches.annotators import CPU_ANNOTATORS, Annotator
from sketches.neighbours import Neighbourhood
from tests.sketches_cases import matmul

TASK = SearchTask(compute_dag=matmul(32, 32, 32), target="llvm -num-cores=2")
Answer = Callable[[Population], Offspring]


def whole(parents: Population, values: Any) -> Offspring:
    every = np.arange(len(parents))
    return Offspring((Population(parents.family, values),), (every,), np.ones(len(parents), dtype=np.bool_))


ANSWERS: dict[str, tuple[Answer, str]] = {
    "parents out of range": (
        lambda p: Offspring((p,), (np.arange(len(p)) + 5,), np.ones(len(p), dtype=np.bool_)),
        "`parents` names",
    ),
    "children of parents without": (
        lambda p: Offspring((p,), (np.arange(len(p)),), np.zeros(len(p), dtype=np.bool_)),
        "0 parents have a child",
    ),
    "two children": (
        lambda p: Offspring((p, p), (np.arange(len(p)),) * 2, np.ones(len(p), dtype=np.bool_)),
        "rows for",
    ),
    "too few children": (
        lambda p: Offspring((p.take([0]),), (np.arange(len(p)),), np.ones(len(p), dtype=np.bool_)),
        "another number of children",
    ),
    "populations without parents": (
        lambda p: Offspring((p,), (), np.ones(len(p), dtype=np.bool_)),
        "not of equal length",
    ),
    "a mask of numbers": (
        lambda p: Offspring((p,), (np.arange(len(p)),), np.ones(len(p))),  # type: ignore[arg-type]
        "array of bools",
    ),
    "halves": (lambda p: whole(p, p.values * 0.5), "of type float64"),
    "negative": (lambda p: whole(p, p.values * 0 - 7), "'tile .* is -7 somewhere; the least is 1"),
    "lengths of 0": (lambda p: whole(p, p.values * 0), "is 0 somewhere; the least is 1"),
    "lengths beyond loops": (lambda p: whole(p, p.values * 0 + 2**40), "a length exceeds 2147483647"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_mutation_that_answers_wrongly_is_named(name: str) -> None:
    answer, message = ANSWERS[name]

    class Mine(Mutation):
        name = "mine"

        def propose(self, parents: Population, neighbourhood: Any, rng: Any) -> Offspring:
            return answer(parents)

    neighbourhood = Neighbourhood(ProgramSpace.of(TASK))
    parents = neighbourhood.space.sample(30, np.random.default_rng(0)).populations[0]
    assert len(parents) > 5
    with pytest.raises(DefinitionError, match=f"mutation 'mine' .*{message}"):
        offspring_of(Mine(), parents, neighbourhood, np.random.default_rng(0))


def test_a_rule_without_end_is_named() -> None:
    class Endless:
        name = "Endless"

        def verdict(self, context: Any, state: Any, stage_id: int) -> Verdict:
            return Verdict.APPLY_AND_SKIP_REST

        def apply(self, context: Any, state: Any, stage_id: int) -> Any:
            return [(state.split(stage_id, 0, (1,)), stage_id)]

    with pytest.raises(ScheduleError, match="sketch rule Endless was applied to stage 'C' 64 times"):
        generate_sketches(TASK, rules=(Endless(), *CPU_RULES))


def test_a_rule_that_branches_without_end_is_named() -> None:
    """Each state makes three, so that waiting for one to be long would take longer than anyone lives."""

    class Bushy:
        name = "Bushy"

        def verdict(self, context: Any, state: Any, stage_id: int) -> Verdict:
            return Verdict.APPLY_AND_SKIP_REST

        def apply(self, context: Any, state: Any, stage_id: int) -> Any:
            return [(state.split(stage_id, 0, (1,)), stage_id)] * 3

    with pytest.raises(
        ScheduleError, match="grown to 750 states, one by applying sketch rule Bushy to stage 'C' 8 times"
    ):
        generate_sketches(TASK, rules=(Bushy(), *CPU_RULES))


def test_a_rule_that_does_an_illegal_step_is_named() -> None:
    class Wrong:
        name = "Wrong"

        def verdict(self, context: Any, state: Any, stage_id: int) -> Verdict:
            return Verdict.APPLY

        def apply(self, context: Any, state: Any, stage_id: int) -> Any:
            return [(state.reorder(stage_id, (0, 0, 1)), stage_id - 1)]

    with pytest.raises(ScheduleError, match="sketch rule Wrong was applied to stage 'C' and did an illegal"):
        generate_sketches(TASK, rules=(Wrong(), *CPU_RULES))


@pytest.mark.parametrize("value", [99, -3])
def test_an_annotator_that_writes_wrong_values_is_named(value: int) -> None:
    class Wild(Annotator):
        def draw(self, draft: Any, rng: Any) -> None:
            draft.values[:, len(draft.values[0]) - 1] = value

    space = ProgramSpace.of(TASK, annotators=(*CPU_ANNOTATORS, Wild()))
    with pytest.raises(DefinitionError, match=f"annotator Wild was given .* left {value} in column 'vec"):
        space.sample(8, np.random.default_rng(0))


@pytest.mark.parametrize("seed", [-1, "a", 1.5, True])
@pytest.mark.parametrize("model", [None, RandomModel(0)])
def test_the_seed_of_a_policy_is_an_integer(seed: Any, model: Any) -> None:
    with pytest.raises(DefinitionError, match=r"SketchPolicy\(seed\) must be an integer of at least 0"):
        SketchPolicy(TASK, model, seed=seed)


def test_a_policy_needs_a_task_and_a_cpu_needs_cores() -> None:
    with pytest.raises(DefinitionError, match=r"SketchPolicy\(task=None\)"):
        SketchPolicy(None)  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="num_cores=0"):
        HardwareParams(num_cores=0)


def test_without_crossover_no_more_programs_are_drawn_anew() -> None:
    """An ablation takes away what it names, and nothing else."""

    def fresh(**changes: Any) -> float:
        params = resolve_params(changes)
        names = ("evolutionary_search_mutation_prob", "evolutionary_search_crossover_prob")
        return 1 - sum(float(params[name]) for name in names)

    assert fresh(**ABLATIONS["no crossover"]) == pytest.approx(fresh(), abs=1e-9)


@pytest.mark.parametrize("verbose", [99, -1, 1.5])
def test_the_level_of_verbosity_is_one_that_there_is(verbose: Any) -> None:
    with pytest.raises(DefinitionError, match=r"TuningOptions\(verbose"):
        TuningOptions(1, verbose=verbose)
