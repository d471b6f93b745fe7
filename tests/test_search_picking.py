"""How a round avoids measuring one program twice: by scores where a model cannot but see the difference."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

import ansor
from ansor import SearchTask, SketchPolicy, State, Task
from ansor.schedule.identity import program_key
from costmodel import FloatArray
from search.generation import Generation
from search.history import History, Trial
from search.picking import Picker
from search.plans import plan_key
from sketches import Population
from sketches.columns import ColumnKind
from sketches.signature import fingerprints
from tests.sketches_cases import matmul_relu, padded_conv1d, softmax

COMPUTATIONS = {
    "softmax": softmax(8, 64),
    "matmul": matmul_relu(16, 24, 128),
    "conv1d": padded_conv1d(12, 4, 6),
}


@cache
def taught(name: str) -> tuple[SearchTask, ansor.DraftedModel]:
    """A task, and the default model, taught made-up run times of it."""
    task = SearchTask(compute_dag=COMPUTATIONS[name], target="llvm -num-cores=2")
    model = ansor.DraftedModel(learned=ansor.XGBModel(num_warmup_sample=3))
    space = SketchPolicy(task, model).space
    states = list(ansor.Programs(space.sample(40, np.random.default_rng(0)).populations))
    results = [ansor.MeasureResult((1e-3 * (1 + index % 7),), timestamp=1) for index in range(len(states))]
    model.update([ansor.MeasureInput(task, state) for state in states], results)
    return task, model


def policy_of(name: str) -> SketchPolicy:
    """The default policy, its model taught, which knows of no program yet."""
    return SketchPolicy(*taught(name), seed=1)


def with_other_limits(policy: SketchPolicy, count: int) -> list[Population]:
    """Sampled rows, each beside itself with other unroll limits."""
    rng, found = np.random.default_rng(1), []
    for population in policy.space.sample(count, rng).populations:
        values = np.repeat(population.values[:2], 4, axis=0)
        for at in population.family.positions(ColumnKind.UNROLL):
            values[:, at] = rng.choice([0, 16, 64, 512], len(values))
        found.append(Population(population.family, np.unique(values, axis=0)))
    return found


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_programs_that_are_compiled_to_the_same_code_have_the_same_score(name: str) -> None:
    """By the default model, alone or among others, whatever the limits of pragmas that change nothing."""
    policy = policy_of(name)
    assert policy.model.tells_plans_apart
    equal = 0
    for population in with_other_limits(policy, 12):
        scores = policy.score([population])
        plans: dict[str, float] = {}
        for row in range(len(population)):
            score = plans.setdefault(plan_key(policy.task, population.materialize(row)), float(scores[row]))
            assert scores[row] == pytest.approx(score, rel=1e-9)
            assert policy.score([population.take([row])])[0] == pytest.approx(score, rel=1e-9)
        equal += len(population) - len(plans)
    assert equal > 2


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_a_round_holds_different_programs_and_lowers_hardly_any_to_see_that(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither two that are compiled alike, nor one that is compiled as a measured one is."""
    policy = policy_of(name)
    populations = with_other_limits(policy, 16)
    scored = Generation.of(populations).scored(policy.score(populations))
    lowered: list[str] = []

    def counting(task: Task, state: State) -> str:
        lowered.append(plan_key(task, state))
        return lowered[-1]

    monkeypatch.setattr("search.known.plan_key", counting)
    history = History()
    for population in populations[::2]:
        state = population.materialize(0)
        history.add(Trial(program_key(state), state, ansor.MeasureResult((1e-3,), timestamp=1)))
    measured = {plan_key(policy.task, trial.state) for trial in history}
    groups: dict[int, set[str]] = defaultdict(set)
    for population in populations:
        for row, coarse in enumerate(fingerprints(population).coarse.tolist()):
            groups[coarse].add(plan_key(policy.task, population.materialize(row)))
    wanted = len(set().union(*groups.values()) - measured) // 2
    picker = Picker(policy.known, history, policy.score, alike=100)
    picker.take(scored, scored.ranking(), wanted)
    plans = [plan_key(policy.task, state) for state in picker.states]
    assert len(plans) == len(set(plans)) == wanted
    assert measured.isdisjoint(plans)
    assert len(lowered) <= wanted // 4
    picker.take_put_off(len(scored))
    plans = [plan_key(policy.task, state) for state in picker.states]
    assert len(plans) == len(set(plans))
    assert measured.isdisjoint(plans)


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_the_model_is_asked_about_those_measured_programs_that_a_candidate_could_equal(name: str) -> None:
    """Each of them once in a round; of the others no score is needed."""
    policy = policy_of(name)
    populations = with_other_limits(policy, 24)
    scored = Generation.of(populations).scored(policy.score(populations))
    history = History()
    for population in populations:
        state = population.materialize(0)
        history.add(Trial(program_key(state), state, ansor.MeasureResult((1e-3,), timestamp=1)))
    asked: list[int] = []

    def score(rows: Sequence[Population]) -> FloatArray:
        asked.extend(loops for each in rows for loops in fingerprints(each).coarse.tolist())
        return policy.score(rows)

    picker = Picker(policy.known, history, score, alike=100)
    half = scored.take(np.arange(len(scored) // 2))
    picker.take(half, half.ranking(), len(scored))
    measured = Counter({loops: len(trials) for loops, trials in policy.known.by_coarse(history).items()})
    near = set(half.prints.coarse.tolist())
    assert Counter(asked) == {loops: count for loops, count in measured.items() if loops in near}
    assert 0 < len(asked) < len(history)
    picker.take(scored, scored.ranking(), len(scored))
    picker.take_put_off(len(scored))
    assert Counter(asked) == measured
