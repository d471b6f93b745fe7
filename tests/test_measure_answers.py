"""A builder or runner that goes wrong is blamed by name, and nothing that was measured is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.errors import DefinitionError
from measure import BuildResult, MeasureResult, load_records
from measure.simulate import NullBuilder, SimulatedRunner, result_of
from tests.search_fakes import options


class OddRunner(SimulatedRunner):
    """Answers as it is told to from its second batch on."""

    def __init__(self, later: Callable[[list[MeasureResult]], Any]) -> None:
        super().__init__(lambda inp: result_of(1e-3))
        self.later, self.batches = later, 0

    def run_each(self, inputs: Any, builds: Any) -> Any:
        self.batches += 1
        results = list(super().run_each(inputs, builds))
        return iter(results) if self.batches == 1 else self.later(results)


class OddBuilder(NullBuilder):
    def __init__(self, answer: Callable[[list[BuildResult]], Any]) -> None:
        super().__init__(n_parallel=2)
        self.answer = answer

    def build_each(self, inputs: Any) -> Any:
        return self.answer(list(super().build_each(inputs)))


def raising(results: Any) -> Any:
    yield from results[:2]
    raise ZeroDivisionError("division by zero")


def tune(log: Path | None = None, **parts: Any) -> ansor.TuningResult:
    task = ansor.SearchTask(func="ansor.matmul", args=(32, 32, 32))
    return task.tune(options(8, log, **parts), ansor.SketchPolicy(task, ansor.RandomModel()))


@pytest.mark.parametrize(
    ("later", "logged", "message"),
    [
        (lambda results: results[:3], 7, "and gave 3 results; yield one MeasureResult per program"),
        (lambda results: results[:1], 5, "and gave 1 result; yield"),
        (lambda results: [], 4, "and gave no results; yield"),
        (lambda results: results * 2, 8, "and gave more results than that; yield"),
        (lambda results: None, 4, "and returned None; yield"),
        (lambda results: [0.001] * 4, 4, r"and gave 0\.001 as result 0; yield"),
    ],
)
def test_a_runner_that_does_not_answer_for_each_program_stops_the_run(
    tmp_path: Path, later: Any, logged: int, message: str
) -> None:
    log = tmp_path / "log.json"
    with pytest.raises(DefinitionError, match=rf"OddRunner\.run_each was asked about 4 programs {message}"):
        tune(log, runner=OddRunner(later))
    assert len(list(load_records(log))) == logged
    assert tune(log).known_trials == logged + 8


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda builds: builds[:3], "and gave 3 results; yield one BuildResult per program"),
        (lambda builds: [*builds, builds[0]], "and gave more results than that"),
        (lambda builds: [b"object"] * 4, "and gave b'object' as result 0"),
    ],
)
def test_so_does_a_builder(answer: Any, message: str) -> None:
    with pytest.raises(
        DefinitionError, match=rf"OddBuilder\.build_each was asked about 4 programs {message}"
    ):
        tune(builder=OddBuilder(answer))


def test_what_they_raise_is_kept_and_says_whose_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    with pytest.raises(ZeroDivisionError) as caught:
        tune(log, runner=OddRunner(raising))
    assert "OddRunner.run_each was asked about 4 programs when this was raised" in caught.value.__notes__[0]
    assert len(list(load_records(log))) == 6
    with pytest.raises(ZeroDivisionError) as caught:
        tune(builder=OddBuilder(raising))
    assert "OddBuilder.build_each was asked about 4 programs" in caught.value.__notes__[0]


@pytest.mark.parametrize("costs", [(), (0.0,), (-1e-3, 1.0), (1e10,)])
def test_a_success_without_a_run_time_stops_the_run(tmp_path: Path, costs: Any) -> None:
    """A log that holds one does not tell the next run what this one saw."""
    log, odd = tmp_path / "log.json", MeasureResult(costs, timestamp=1)
    with pytest.raises(DefinitionError, match=r"OddRunner\.run_each gave a success with the costs \["):
        tune(log, runner=OddRunner(lambda results: [*results[:2], odd, *results[3:]]))
    assert len(list(load_records(log))) == 6


@pytest.mark.parametrize(
    "given",
    [
        {"costs": (float("nan"),)},
        {"costs": (1.0, float("inf"))},
        {"costs": ("1",)},
        {"costs": (1.0,), "all_cost": float("nan")},
        {"costs": (1.0,), "timestamp": None},
    ],
)
def test_results_are_finite_numbers(given: Any) -> None:
    with pytest.raises(DefinitionError, match="MeasureResult"):
        MeasureResult(**given)


@pytest.mark.parametrize("answer", [None, float("nan"), 0, "fast"])
def test_a_function_that_simulates_gives_run_times(answer: Any) -> None:
    with pytest.raises(DefinitionError, match=r"a simulated run time \[s\] must be a finite number above 0"):
        tune(runner=SimulatedRunner(lambda inp: answer))
