"""The first generation of a round: what measured best, up to its share, among new programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ansor.schedule.identity import program_key
from ansor.task.task import Task
from costmodel import CostModel, FloatArray, Programs, RandomModel
from measure import MeasureErrorNo, MeasureInput, MeasureResult
from search import History, SearchTask, SketchPolicy, Trial
from sketches import Sketch
from tests.fake_machine import matmul_task
from tests.sketches_cases import padded_conv1d

POPULATION = 48


class Listening(CostModel):
    """Likes the programs that it is asked about first, and notes them."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        return

    def predict(self, task: Task, candidates: Any) -> FloatArray:
        assert isinstance(candidates, Programs)
        self.asked.append([program_key(state) for state in candidates])
        return -np.arange(len(candidates), dtype=np.float64)


@pytest.fixture(scope="module")
def task() -> SearchTask:
    return matmul_task(64)


@pytest.fixture(scope="module")
def trials(task: SearchTask) -> list[Trial]:
    """Random programs, every third of which failed; the later ones are faster."""
    drawn = SketchPolicy(task, RandomModel(), {"first_rounds_size": 0}, seed=5).propose(0, 45, History())
    made = []
    for number, state in enumerate(drawn.states):
        result = MeasureResult((1e-3 / (1 + number),), all_cost=1.0, timestamp=1)
        if number % 3 == 2:
            result = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "too slow", 1.0, 1)
        made.append(Trial(program_key(state), state, result))
    return made


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 1.0])
def test_the_best_measured_programs_have_their_share(
    task: SearchTask, trials: list[Trial], share: float
) -> None:
    history, model = History(), Listening()
    for trial in trials:
        history.add(trial)
    params = {
        "evolutionary_search_population": POPULATION,
        "evolutionary_search_num_iters": 0,
        "sample_init_use_measured_ratio": share,
        "polish_ratio": 0.0,
    }
    proposal = SketchPolicy(task, model, params, seed=1).propose(3, 8, history)
    fastest = [trial.key for trial in reversed(trials) if trial.seconds is not None]
    count = min(int(share * POPULATION), len(fastest))
    first = model.asked[0]
    assert set(fastest[:count]) <= set(first)
    assert not set(fastest[count:]) & set(first)
    assert not {trial.key for trial in trials if trial.seconds is None} & set(first)
    assert len(first) <= POPULATION
    assert len(set(first)) > POPULATION // 3
    assert not {program_key(state) for state in proposal.states} & {trial.key for trial in trials}


def test_a_first_round_has_new_programs_only(task: SearchTask) -> None:
    model = Listening()
    params = {"evolutionary_search_population": POPULATION, "evolutionary_search_num_iters": 0}
    proposal = SketchPolicy(task, model, params, seed=1).propose(0, 8, History())
    assert len(proposal.states) == 8
    assert {program_key(state) for state in proposal.states} <= set(model.asked[0])


class Noting(CostModel):
    """Likes all programs alike, and notes their sketches each time that it is asked."""

    def __init__(self) -> None:
        self.asked: list[set[Sketch]] = []

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        return

    def predict(self, task: Task, candidates: Any) -> FloatArray:
        assert isinstance(candidates, Programs)
        self.asked.append({population.family.sketch for population in candidates.populations})
        return np.zeros(len(candidates))


def many_sketches() -> SearchTask:
    return SearchTask(compute_dag=padded_conv1d(16, 8, 16), target="llvm -num-cores=2")


PARAMS_OF_TURNS = {
    "evolutionary_search_population": POPULATION,
    "evolutionary_search_num_iters": 0,
    "first_round_more_iters": 0,
    "sample_init_use_measured_ratio": 0.0,
    "polish_ratio": 0.0,
}


def test_a_round_draws_from_a_limited_number_of_sketches_and_each_has_its_turn() -> None:
    """Equal seeds have the same turns, whatever rounds were proposed before."""
    params = {**PARAMS_OF_TURNS, "max_families": 3}
    policy, model = SketchPolicy(many_sketches(), Noting(), params, seed=1), Noting()
    assert isinstance(policy.model, Noting)
    sketches = set(policy.space.sketches)
    assert len(sketches) > 5
    for number in range(len(sketches)):
        policy.propose(number, 4, History())
    assert all(0 < len(drawn) <= 3 for drawn in policy.model.asked)
    assert set().union(*policy.model.asked) == sketches
    again = SketchPolicy(policy.task, model, params, seed=1)
    again.propose(2, 4, History())
    where = {sketch: number for number, sketch in enumerate(again.space.sketches)}
    expected = {number for number, s in enumerate(policy.space.sketches) if s in policy.model.asked[2]}
    assert {where[sketch] for sketch in model.asked[0]} == expected


def test_sketches_of_the_fastest_programs_are_drawn_from_out_of_turn() -> None:
    """In all rounds, up to a quarter of them; others have their turns beside them."""
    model = Noting()
    policy = SketchPolicy(many_sketches(), model, {**PARAMS_OF_TURNS, "max_families": 4}, seed=1)
    sketches, history = policy.space.sketches, History()
    assert len(sketches) > 5
    rng = np.random.default_rng(0)
    for number, sketch in enumerate(sketches[:3]):
        population = policy.space.of_sketches((sketch,)).sample(8, rng).populations[0]
        state = population.materialize(0)
        history.add(Trial(program_key(state), state, MeasureResult((1e-3 / (1 + number),), timestamp=1)))
    fastest = policy.known.best(history, 1)[0].family.sketch
    assert fastest is sketches[2]
    for number in range(len(sketches)):
        policy.propose(number, 4, history)
    assert all(fastest in drawn and len(drawn) <= 4 for drawn in model.asked)
    assert set().union(*model.asked) == set(sketches)


def test_all_sketches_are_drawn_from_where_the_limit_allows_it() -> None:
    model = Noting()
    policy = SketchPolicy(many_sketches(), model, PARAMS_OF_TURNS, seed=1)
    policy.propose(0, 4, History())
    assert model.asked[0] == set(policy.space.sketches)
