"""A cost model that goes wrong is blamed by name, and nothing that was measured is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.errors import DefinitionError
from measure import load_records
from measure.simulate import SimulatedRunner
from search.history import History
from tests.search_fakes import options, simulated_cost

SMALL = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1, "first_rounds_size": 8}


class Odd(ansor.CostModel):
    """Answers well in the first round, and whatever it is told to later."""

    def __init__(self, later: Callable[[np.ndarray], Any]) -> None:
        self.later, self.learned = later, 0

    def update(self, inputs: Any, results: Any) -> None:
        self.learned += len(inputs)

    def predict(self, task: Any, candidates: Any) -> Any:
        scores = np.arange(len(candidates), dtype=np.float64)
        return self.later(scores) if self.learned else scores


def one_missing(scores: np.ndarray) -> Any:
    scores[3] = np.nan
    return scores


def failing(scores: np.ndarray) -> Any:
    raise KeyError("unroll")


@pytest.fixture(scope="module")
def task() -> ansor.SearchTask:
    return ansor.SearchTask(func="ansor.matmul", args=(32, 32, 32))


def tune(task: ansor.SearchTask, model: Any, log: Path) -> Any:
    runner = SimulatedRunner(simulated_cost)
    policy = ansor.SketchPolicy(task, model, SMALL)
    return task.tune(options(16, log, runner=runner, num_measures_per_round=8), policy)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (one_missing, "returned nan for 1 of them, first for program 3; a score is a number"),
        (lambda scores: scores + np.inf, "returned inf for 64 of them, first for program 0"),
        (lambda scores: scores[:-1], r"returned an array of shape \(63,\); return one number per program"),
        (lambda scores: scores[:, None], r"returned an array of shape \(64, 1\)"),
        (lambda scores: 1.0, r"returned an array of shape \(\)"),
        (lambda scores: None, r"returned an array of shape \(\)"),
        (lambda scores: ["fast"] * len(scores), "which is no array of numbers"),
        (lambda scores: [[1.0], [1.0, 2.0]], "which is no array of numbers"),
    ],
)
def test_an_answer_that_is_no_score_per_program_stops_the_run(
    task: ansor.SearchTask, tmp_path: Path, later: Any, message: str
) -> None:
    log = tmp_path / "log.json"
    with pytest.raises(DefinitionError, match=message) as caught:
        tune(task, Odd(later), log)
    assert "Odd.predict was asked to score 64 programs of matmul(32, 32, 32)" in str(caught.value)
    assert "with the same log a run goes on" in str(caught.value)
    assert len(list(load_records(str(log)))) == 8
    assert tune(task, Odd(lambda scores: scores), log).known_trials >= 16


def test_what_a_model_raises_is_kept_and_says_whose_it_is(task: ansor.SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    with pytest.raises(KeyError, match="unroll") as caught:
        tune(task, Odd(failing), log)
    assert "Odd.predict was asked to score 64 programs" in caught.value.__notes__[0]
    assert len(list(load_records(str(log)))) == 8


def test_a_model_that_cannot_learn_loses_nothing(task: ansor.SearchTask, tmp_path: Path) -> None:
    class Closed(Odd):
        def update(self, inputs: Any, results: Any) -> None:
            raise ZeroDivisionError

    log = tmp_path / "log.json"
    with pytest.raises(ZeroDivisionError) as caught:
        tune(task, Closed(failing), log)
    assert "Closed.update was given 8 measurements when this was raised" in caught.value.__notes__[0]
    assert len(list(load_records(str(log)))) == 8


def test_programs_that_a_model_rules_out_are_not_measured(task: ansor.SearchTask, tmp_path: Path) -> None:
    """-inf is a score."""
    model = Odd(lambda scores: np.where(scores < 32, -np.inf, scores))
    assert tune(task, model, tmp_path / "log.json").trials == 16


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            ansor.XGBModel,
            r"SketchPolicy\(program_cost_model\)=XGBModel: it is a class; pass an object, XGBModel",
        ),
        ("xgb", "it is no cost model, for it has no informative and no update and no predict"),
    ],
)
def test_what_is_no_model_is_refused(task: ansor.SearchTask, model: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        ansor.SketchPolicy(task, model)


class Excluding(ansor.CostModel):
    """Rules out every program that unrolls nothing by a pragma."""

    def update(self, inputs: Any, results: Any) -> None:
        pass

    def predict(self, task: Any, candidates: Any) -> Any:
        return np.array([1.0 if unrolls(state) else -np.inf for state in candidates])


def unrolls(state: ansor.State) -> bool:
    return any(stage.auto_unroll_max_step > 0 for stage in state.stages)


@pytest.mark.parametrize("args", [(4, 4), (128, 128)])
def test_programs_that_a_model_rules_out_do_not_fill_a_round(tmp_path: Path, args: tuple[int, int]) -> None:
    task = ansor.SearchTask(func="ansor.softmax", args=args)
    policy = ansor.SketchPolicy(task, Excluding(), params=SMALL)
    log = tmp_path / "log.json"
    result = task.tune(options(24, log, runner=SimulatedRunner(simulated_cost)), policy)
    states = [inp.state.replay(task.compute_dag) for inp, _ in load_records(log)]
    assert states
    assert all(map(unrolls, states))
    assert result.trials == 24


@pytest.mark.parametrize(
    ("name", "args", "population", "listed"),
    [("ansor.matmul", (1, 1, 4), 2048, True), ("ansor.softmax", (128, 128), 4, False)],
)
def test_programs_that_a_model_rules_out_are_not_drawn_where_evolution_has_too_few(
    name: str, args: tuple[int, ...], population: int, listed: bool
) -> None:
    """From a list of all programs, as from a space of more than a generation."""
    task = ansor.SearchTask(func=name, args=args)
    settings = {**SMALL, "evolutionary_search_population": population, "first_rounds_size": 0}
    policy = ansor.SketchPolicy(task, Excluding(), params=settings)
    proposal = policy.propose(0, 64, History())
    assert (policy.all_programs is not None) == listed
    assert len(proposal.states) > 8
    assert ("the cost model rules them out" in proposal.note) == listed
    assert all(map(unrolls, proposal.states))
