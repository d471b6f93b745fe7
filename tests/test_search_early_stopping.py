"""Early stopping by default: a run that brings nothing more ends and says so, one that improves goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import ansor
from costmodel import RandomModel
from measure import MeasureInput
from measure.simulate import NullBuilder, SimulatedRunner
from search import SearchTask, SketchPolicy, StopReason, TaskScheduler, TuningOptions
from tests.fake_machine import matmul_task, options


class Costs:
    """One cost for all programs [s], until every so many of them one is faster than all before."""

    def __init__(self, every: int | None = None) -> None:
        self.every = every
        self.asked = 0

    def __call__(self, inp: MeasureInput) -> float:
        self.asked += 1
        return 1e-3 / (1 + (self.asked // self.every if self.every else 0))


def by_default(trials: int, costs: Costs, per_round: int, log: Path | None = None) -> TuningOptions:
    """Options that leave early stopping at its default."""
    made = options(
        trials,
        log,
        builder=NullBuilder(n_parallel=2),
        runner=SimulatedRunner(costs),
        num_measures_per_round=per_round,
    )
    assert made.early_stopping == ansor.TuningOptions().early_stopping == "auto"
    return made


@pytest.fixture(scope="module")
def task() -> SearchTask:
    return matmul_task(64)


def at_random(task: SearchTask) -> SketchPolicy:
    return SketchPolicy(task, RandomModel())


# -- one task ------------------------------------------------------------------------------------------------


def test_a_run_that_brings_nothing_more_ends_after_a_third_of_its_trials(task: SearchTask) -> None:
    result = task.tune(by_default(450, Costs(), 40), at_random(task))
    assert result.stop_reason is StopReason.EARLY_STOPPING
    assert 150 < result.trials <= 150 + 40
    assert f"the last {result.trials - 1} trials brought no improvement (early_stopping=150)" in str(result)


def test_a_run_that_improves_now_and_then_goes_on(task: SearchTask) -> None:
    result = task.tune(by_default(450, Costs(every=110), 40), at_random(task))
    assert result.stop_reason is StopReason.TRIALS_DONE
    assert result.trials == 450


def test_a_short_run_is_never_cut(task: SearchTask) -> None:
    result = task.tune(by_default(100, Costs(), 20), at_random(task))
    assert result.stop_reason is StopReason.TRIALS_DONE


def test_a_run_in_pieces_is_as_patient_as_a_whole_one(task: SearchTask, tmp_path: Path) -> None:
    """The second piece alone would have given up earlier: what the log holds counts among all trials."""
    log = tmp_path / "log.json"
    first = task.tune(by_default(90, Costs(), 30, log), at_random(task))
    assert first.stop_reason is StopReason.TRIALS_DONE
    second = task.tune(by_default(360, Costs(), 30, log), at_random(task))
    assert second.stop_reason is StopReason.EARLY_STOPPING
    assert "(early_stopping=150)" in second.message
    assert 150 < second.known_trials <= 150 + 30


# -- many tasks ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tasks() -> list[SearchTask]:
    return [matmul_task(n) for n in (32, 48, 64, 80)]


@pytest.mark.parametrize("strategy", ["gradient", "round-robin"])
def test_a_scheduler_ends_when_no_task_gets_anywhere(tasks: list[SearchTask], strategy: str) -> None:
    """Not before each task had two turns since, which here are more than a third of the trials."""
    turns = 2 * len(tasks) * 25
    chosen = TaskScheduler(tasks, strategy=strategy, callbacks=[])  # type: ignore[arg-type]
    result = chosen.tune(by_default(450, Costs(), 25), "sketch.random")
    assert result.stop_reason is StopReason.EARLY_STOPPING
    assert turns <= chosen.ct - chosen.best_ct < turns + 25
    assert result.trials < 450
    assert f"the last {chosen.ct - chosen.best_ct} trials of all tasks brought no improvement" in str(result)


def test_a_scheduler_goes_on_while_a_task_improves(tasks: list[SearchTask]) -> None:
    result = TaskScheduler(tasks, callbacks=[]).tune(by_default(450, Costs(every=110), 25), "sketch.random")
    assert result.stop_reason is StopReason.TRIALS_DONE
    assert result.trials == 450
