"""The end of a run over a noisy runner: the best few are measured again, and what that says is the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor import te
from ansor.schedule.identity import program_key
from measure import (
    BuildResult,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    NullBuilder,
    ProgramMeasurer,
    ProgramRunner,
    save_records,
)
from measure.race import LEAST_ROUNDS
from measure.records.record import LoggedState, LoggedTask, Seconds
from search.finals import ROUNDS
from search.history import Trial
from search.preload import Earlier

pytestmark = pytest.mark.usefixtures("small_searches")

N = 64


def timed(*costs: float) -> MeasureResult:
    return MeasureResult(tuple(map(Seconds, costs)), all_cost=0.5, timestamp=3)


def matmul_task() -> ansor.SearchTask:
    a, b = te.placeholder((N, N), name="A"), te.placeholder((N, N), name="B")
    k = te.reduce_axis((0, N), "k")
    c = te.compute((N, N), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return ansor.SearchTask(compute_dag=[a, b, c], workload_key='["finals", 64]')


class NoisyRunner(ProgramRunner):
    """Times that are a function of the program; the first figure is a lucky one."""

    noisy = True

    def __init__(self) -> None:
        self.calls: list[str] = []

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for inp in inputs:
            key = program_key(inp.state)  # type: ignore[arg-type]
            number = sum(map(ord, key))
            luck = 1.0 if key in self.calls else 0.98 + 0.02 * (number % 7) / 7
            self.calls.append(key)
            yield MeasureResult((Seconds(luck * (0.01 + 1e-5 * (number % 50))),))


def options(log: Path, runner: ProgramRunner, trials: int, finalists: Any = 3) -> ansor.TuningOptions:
    return ansor.TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=8,
        verbose=0,
        builder=NullBuilder(),
        runner=runner,
        measure_callbacks=[ansor.RecordToFile(str(log))],
        num_finalists=finalists,
    )


def test_the_winner_is_measured_again_logged_and_fetched(tmp_path: Path) -> None:
    task, runner, log = matmul_task(), NoisyRunner(), tmp_path / "log.json"
    result = task.tune(options(log, runner, 16), ansor.SketchPolicy(task))
    assert result.trials == result.known_trials == 16
    assert result.best_result is not None
    assert len(result.best_result.costs) == ROUNDS
    state, seconds = task.best_state(str(log))
    assert seconds == result.best_cost == pytest.approx(result.best_result.mean_cost)
    assert result.best_state is not None
    assert program_key(state) == program_key(result.best_state)
    assert len(list(ansor.load_records(str(log)))) > 16
    assert f"of {ROUNDS} repeats" in str(result)


def test_finalists_are_measured_in_turn(tmp_path: Path) -> None:
    task, runner = matmul_task(), NoisyRunner()
    task.tune(options(tmp_path / "log.json", runner, 8), ansor.SketchPolicy(task))
    first = runner.calls[8:11]
    assert len(set(first)) == 3
    assert runner.calls[8 : 8 + 3 * LEAST_ROUNDS] == first * LEAST_ROUNDS


class CountingBuilder(NullBuilder):
    """Notes which programs it builds."""

    def __init__(self) -> None:
        super().__init__()
        self.built: list[MeasureInput] = []

    def build_each(self, inputs: Sequence[MeasureInput]) -> Iterator[BuildResult]:
        for inp in inputs:
            self.built.append(inp)
            yield BuildResult(str(len(self.built)).encode(), time_cost=1.0)


def test_finalists_are_not_built_again(tmp_path: Path) -> None:
    task, runner, builder, log = matmul_task(), NoisyRunner(), CountingBuilder(), tmp_path / "log.json"
    task.tune(replace(options(log, runner, 8), builder=builder), ansor.SketchPolicy(task))
    assert len(runner.calls) > len(builder.built) == 8


def test_the_fastest_programs_are_kept_as_they_were_built() -> None:
    """Of two tasks: the fastest beside the best one of each, and one that failed is built again."""
    ran: list[bytes | None] = []

    class Runner(ProgramRunner):
        def run_each(
            self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
        ) -> Iterator[MeasureResult]:
            for inp, build in zip(inputs, builds, strict=True):
                ran.append(build.object_bytes)
                assert isinstance(inp.state, LoggedState)
                cost = 1.0 + inp.state.steps_json[0][1]
                slow = 1000.0 if inp.task.workload_key == "slow" else 1.0
                failed = MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 1.0, 1)
                yield failed if cost == 1.0 else MeasureResult((Seconds(slow * cost),))

    builder = CountingBuilder()
    measurer = ProgramMeasurer(builder, Runner())
    tasks = [LoggedTask(name, "llvm") for name in ("fast", "slow")]
    inputs = [MeasureInput(task, LoggedState((("SP", number),))) for number in range(21) for task in tasks]
    measurer.measure(inputs)
    assert len(builder.built) == len(inputs) == 42
    builder.built.clear()
    ran.clear()
    measurer.measure_again(inputs, 1)
    assert [inp.state for inp in builder.built] == [inp.state for inp in (*inputs[:2], *inputs[-8:])]
    assert ran[2:34] == [str(number).encode() for number in range(3, 35)]


def test_a_run_goes_on_from_a_log_with_finals_as_if_there_were_none(tmp_path: Path) -> None:
    whole, pieces = NoisyRunner(), NoisyRunner()
    task = matmul_task()
    task.tune(options(tmp_path / "whole.json", whole, 24, finalists=0), ansor.SketchPolicy(task))
    for _ in range(3):
        result = task.tune(options(tmp_path / "pieces.json", pieces, 8), ansor.SketchPolicy(task))
        assert result.trials == 8
    assert whole.calls == list(dict.fromkeys(pieces.calls))
    assert result.known_trials == 24


def test_what_was_settled_is_not_measured_again(tmp_path: Path) -> None:
    task, runner, log = matmul_task(), NoisyRunner(), tmp_path / "log.json"
    before = task.tune(options(log, runner, 8), ansor.SketchPolicy(task))
    calls = len(runner.calls)
    after = task.tune(options(log, runner, 0), ansor.SketchPolicy(task))
    assert len(runner.calls) == calls
    assert (after.best_cost, after.best_result) == (before.best_cost, before.best_result)


class FlakyRunner(NoisyRunner):
    """Runs each program once; whoever asks again has it time out."""

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for result in super().run_each(inputs, builds):
            again = self.calls.count(self.calls[-1]) > 1
            yield MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 1.0, 1) if again else result


def test_a_final_that_fails_by_accident_takes_nothing_away(tmp_path: Path) -> None:
    """The run, its log, and a run that goes on from it name the same winner."""
    task, runner, log = matmul_task(), FlakyRunner(), tmp_path / "log.json"
    result = task.tune(options(log, runner, 8), ansor.SketchPolicy(task))
    failed = [res for _, res in ansor.load_records(str(log)) if not res.ok]
    assert len(failed) == 3
    state, seconds = task.best_state(str(log))
    assert seconds == result.best_cost
    assert result.best_state is not None
    assert program_key(state) == program_key(result.best_state)
    after = task.tune(options(log, runner, 0), ansor.SketchPolicy(task))
    assert after.best_cost == result.best_cost


@pytest.mark.parametrize(
    "later", [timed(5), MeasureResult.failed(MeasureErrorNo.RUN_TIMEOUT, "", 1.0, 1)], ids=["fewer", "failed"]
)
def test_what_was_measured_again_need_not_count(later: MeasureResult) -> None:
    state = ansor.State.initial(matmul_task().compute_dag)
    history = ansor.History()
    for key, first in (("fast", timed(1, 1)), ("slow", timed(2, 2))):
        history.add(Trial(key, state, first))
        history.settle(key, later)
        assert history.is_settled(key)
    assert [trial.result for trial in history.ranking()] == [timed(1, 1), timed(2, 2)]
    assert history.winner is not None
    assert history.winner.key == "fast"


class UnluckyRunner(NoisyRunner):
    """All programs are equal but for the luck of the first figure of the first five."""

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for inp in inputs:
            key = program_key(inp.state)  # type: ignore[arg-type]
            lucky = key not in self.calls and len(set(self.calls)) < 5
            self.calls.append(key)
            yield timed(0.0098 if lucky else 0.01)


def test_of_those_left_only_what_looks_better_than_the_finalists_is_measured_again(tmp_path: Path) -> None:
    task, runner = matmul_task(), UnluckyRunner()
    task.tune(options(tmp_path / "log.json", runner, 8), ansor.SketchPolicy(task))
    assert {runner.calls.count(key) for key in runner.calls[:5]} == {1 + ROUNDS}
    assert {runner.calls.count(key) for key in runner.calls[5:8]} == {1}


def test_two_runs_into_one_log_do_not_replace_the_finals(tmp_path: Path) -> None:
    """Each program stands there twice with as many repeats; the best is measured again all the same."""
    task, runner, log = matmul_task(), NoisyRunner(), tmp_path / "log.json"
    task.tune(options(log, runner, 8, finalists=0), ansor.SketchPolicy(task))
    for inp, res in list(ansor.load_records(str(log))):
        save_records(log, [inp], [timed(0.9 * res.mean_cost)])
    result = task.tune(options(log, NoisyRunner(), 1), ansor.SketchPolicy(task))
    assert result.known_trials == 9
    assert result.best_result is not None
    assert len(result.best_result.costs) == ROUNDS


def test_results_of_several_logs_are_weighed_together() -> None:
    """Against what the run's own log said first, not only against others of the same log."""
    state = ansor.State.initial(matmul_task().compute_dag)
    key = program_key(state)
    own, given = [(state, timed(1))], [(state, timed(3, 3, 3))]
    both = Earlier.of(given, own)
    assert (both.known, [trial.result for trial in both.log]) == ((), [timed(1)])
    assert both.settled == {key: timed(3, 3, 3)}
    assert Earlier.of([(state, timed(2)), (state, timed(3, 3))], [(state, timed(1, 1, 1))]).settled == {}
    assert Earlier.of([(state, timed(1)), (state, timed(3, 3))], []).settled == {key: timed(3, 3)}


def test_a_runner_without_noise_is_asked_once(tmp_path: Path) -> None:
    task, log = matmul_task(), tmp_path / "log.json"
    runner = ansor.SimulatedRunner(lambda inp: 1.0 + len(str(inp.state)) * 1e-6)
    result = task.tune(options(log, runner, 8), ansor.SketchPolicy(task))
    assert runner.asked == result.trials == 8


def test_a_scheduler_holds_finals_for_each_task(tmp_path: Path) -> None:
    task, runner, log = matmul_task(), NoisyRunner(), tmp_path / "log.json"
    scheduler = ansor.TaskScheduler([task], callbacks=[])
    outcome = scheduler.tune(options(log, runner, 8))
    (result,) = outcome.results
    assert result.best_result is not None
    assert len(result.best_result.costs) == ROUNDS
    assert outcome.objective == pytest.approx(result.best_cost)


def test_finals_are_held_by_themselves_after_many_trials(tmp_path: Path) -> None:
    task, runner, log = matmul_task(), NoisyRunner(), tmp_path / "log.json"
    few = options(log, runner, 31, finalists="auto")
    assert len(task.tune(few, ansor.SketchPolicy(task)).best_result.costs) == 1
    one_more = options(log, runner, 1, finalists="auto")
    assert len(task.tune(one_more, ansor.SketchPolicy(task)).best_result.costs) == ROUNDS
    with pytest.raises(ansor.DefinitionError, match="num_finalists"):
        ansor.TuningOptions(num_finalists=-1)


class SlowingRunner(NoisyRunner):
    """A machine that takes twice as long from the finals on."""

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        again = [program_key(inp.state) in self.calls for inp in inputs]  # type: ignore[arg-type]
        for slow, result in zip(again, super().run_each(inputs, builds), strict=True):
            yield MeasureResult((Seconds((2 if slow else 1) * result.mean_cost),))


def test_a_machine_that_slows_down_gives_no_winner_that_nobody_measured_again(tmp_path: Path) -> None:
    """However many look better than the best finalist: those of before that were not in the finals all do."""
    task, runner, log = matmul_task(), SlowingRunner(), tmp_path / "log.json"
    result = task.tune(options(log, runner, 40, finalists=2), ansor.SketchPolicy(task))
    assert result.best_state is not None
    assert runner.calls.count(program_key(result.best_state)) == 1 + ROUNDS
    state, seconds = task.best_state(str(log))
    assert program_key(state) == program_key(result.best_state)
    assert seconds == result.best_cost == pytest.approx(0.02, rel=0.05)
