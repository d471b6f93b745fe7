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
from tests.fake_machine import matmul_task

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
