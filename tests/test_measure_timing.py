"""How long programs are timed: briefly if they cannot be the best, in full if they can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

import ansor
from ansor.errors import MeasureTimeoutError, WrongAnswerError
from ansor.runtime.interference import CountingWatch
from ansor.runtime.timing import TimeResult
from measure import (
    BuildResult,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    NullBuilder,
    ProgramMeasurer,
    ProgramRunner,
)
from measure.records.record import LoggedState, LoggedTask, Seconds
from measure.timing import LOOKS, SETTLING_MS, time_program
from measure.workers.jobs import measure_program

FULL = {"number": 3, "repeat": 4, "min_repeat_ms": 30.0, "longest_call": 2.5, "slow_call": None}


def timed(first: float, later: float, **changes: float) -> tuple[TimeResult, list[int]]:
    """Result and numbers of calls of a program of which the first call takes another time than the others."""
    calls: list[int] = []

    def run(number: int) -> float:
        calls.append(number)
        return number * later

    return time_program(run, first, {**FULL, **changes}), calls


def test_a_program_without_rival_is_timed_in_full() -> None:
    assert timed(0.1, 0.1) == (TimeResult((0.1,) * 4), [1, 1, 1, 1])
    result, calls = timed(0.02, 0.02)
    assert (len(result.results), calls) == (4, [2, 2, 2, 2])


def test_a_slow_program_has_short_repeats_only() -> None:
    assert timed(0.1, 0.09, slow_call=0.05) == (TimeResult((0.09,)), [1])
    result, calls = timed(1e-3, 0.25e-3, slow_call=0.2e-3)
    assert result.results == (0.25e-3,)
    assert calls[-1] * 0.25 >= 1.0  # a millisecond, not one call, which would time the waking of threads
    assert sum(calls) * 0.25 < 2 * SETTLING_MS


@pytest.mark.parametrize("slow_call", [1.25e-3, None])
def test_a_program_whose_threads_share_a_core_for_some_milliseconds_is_as_fast_as_it_is(
    slow_call: float | None,
) -> None:
    spent = 1.5e-3

    def run(number: int) -> float:
        nonlocal spent
        seconds = sum(1.4e-3 if spent + i * 1.4e-3 < 6e-3 else 0.5e-3 for i in range(number))
        spent += seconds
        return seconds

    result = time_program(run, 1.5e-3, {**FULL, "slow_call": slow_call})
    assert result.results == pytest.approx((0.5e-3,) * 4)


def test_a_tiny_program_is_not_called_for_milliseconds_where_single_calls_are_asked_for() -> None:
    _, calls = timed(1e-6, 1e-6, number=1, min_repeat_ms=0.0)
    assert len(calls) <= 2 * LOOKS + 5


@pytest.mark.parametrize(("seconds", "repeats"), [(0.1, 4), (0.5, 4), (1.2, 1), (2.4, 1)])
def test_there_are_as_many_repeats_as_there_is_time_for(seconds: float, repeats: int) -> None:
    result, calls = timed(seconds, seconds, all_calls=5.0, number=2, min_repeat_ms=0.0)
    assert len(result.results) == repeats
    assert seconds * (1 + sum(calls)) < 5.0


def test_repeats_are_done_again_if_there_is_time_for_it() -> None:
    """A load that comes and goes: every other repeat is disturbed."""
    clock = 0.0

    def run(number: int) -> float:
        nonlocal clock
        clock += 1.0
        return 0.5 * number

    waits = iter(range(1000))
    result = time_program(
        run,
        0.5,
        {**FULL, "min_repeat_ms": 0.0, "number": 1, "all_calls": 3.0},
        watch=CountingWatch(lambda: 0.5 * next(waits)),
    )
    assert clock <= 5
    assert result.disturbed == len(result.results)


def test_a_program_that_is_slow_at_first_only_is_timed_in_full() -> None:
    result, _ = timed(0.1, 0.02, slow_call=0.05)
    assert result.results == (0.02,) * 4


def test_a_full_repeat_is_planned_by_the_short_ones_so_that_none_is_thrown_away() -> None:
    jitter = iter([1.0, 1.04, 0.97, 1.02, 0.99] * 20)
    calls: list[int] = []

    def run(number: int) -> float:
        calls.append(number)
        return number * 10e-6 * next(jitter)

    result = time_program(run, 15e-6, FULL)
    full = [number for number in calls if number * 10e-3 > 20.0]
    assert len(full) == len(result.results) == FULL["repeat"]
    assert len(set(full)) == 1


@pytest.mark.parametrize(("factor", "costs"), [(1.8, 4), (2.5, 1)])
def test_a_load_beside_a_program_does_not_condemn_it(factor: float, costs: int) -> None:
    """Its cores are shared, so it may be twice as fast as it looks."""
    clock = iter(range(1000))
    slow = {**FULL, "slow_call": 1e-3}
    result = time_program(
        lambda number: factor * 1e-3 * number,
        factor * 1e-3,
        slow,
        watch=CountingWatch(lambda: float(next(clock))),
    )
    assert len(result.results) == costs


def test_a_very_slow_program_is_not_called_again() -> None:
    assert timed(2.6, 2.6, slow_call=0.1) == (TimeResult((2.6,)), [])


def test_caches_are_not_emptied_to_let_threads_settle() -> None:
    flushed: list[None] = []
    timing = {**FULL, "number": 1, "min_repeat_ms": 0.0}
    time_program(lambda number: number * 1e-6, 1e-6, timing, flush=lambda: flushed.append(None))
    assert len(flushed) == FULL["repeat"]


def test_a_first_slow_call_condemns_no_program_where_caches_are_emptied_either() -> None:
    calls = iter([30e-6] * 4 + [10e-6] * 99)
    timing = {**FULL, "number": 1, "min_repeat_ms": 0.0, "slow_call": 25e-6}
    result = time_program(lambda _: next(calls), 30e-6, timing, flush=lambda: None)
    assert result.results == (10e-6,) * 4


class _Asked(ProgramRunner):
    """Answers with given times; notes the rivals that it is told of."""

    def __init__(self, costs: Sequence[float]) -> None:
        self.costs = iter(costs)
        self.rivals: list[float | None] = []

    def run_each(
        self, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
    ) -> Iterator[MeasureResult]:
        for inp in inputs:
            self.rivals.append(inp.rival)
            yield MeasureResult((Seconds(next(self.costs)),))


def inputs(count: int, rival: float | None = None, key: str = "w") -> list[MeasureInput]:
    return [MeasureInput(LoggedTask(key, "llvm"), LoggedState(()), rival) for _ in range(count)]


def test_the_measurer_tells_the_runner_of_the_best_so_far() -> None:
    runner = _Asked([3.0, 2.0, 4.0, 1.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    measurer = ProgramMeasurer(NullBuilder(), runner)  # batches of two
    measurer.measure(inputs(4))
    assert runner.rivals == [None, None, 2.0, 2.0]
    measurer.measure(inputs(2, rival=0.5))
    measurer.measure(inputs(2, rival=9.0))
    measurer.measure(inputs(1, key="other"))
    assert runner.rivals[4:] == [0.5, 0.5, 1.0, 1.0, None]


@pytest.mark.parametrize(
    "other", [LoggedTask("w", "llvm -mcpu=x86-64"), LoggedTask("w", "llvm", layout_rewrite_option=2)]
)
def test_programs_for_another_target_or_layout_are_no_rivals(other: LoggedTask) -> None:
    runner = _Asked([2.0, 3.0, 4.0])
    measurer = ProgramMeasurer(NullBuilder(), runner)
    measurer.measure(inputs(1))
    measurer.measure([MeasureInput(other, LoggedState(()))])
    measurer.measure(inputs(1))
    assert runner.rivals == [None, None, 2.0]
    assert set(measurer.best) == {inputs(1)[0].task.key, other.key}


def test_a_runner_asks_for_short_timing_of_what_is_slower_than_the_factor() -> None:
    with LocalRunner(drop_factor=3.0) as runner, LocalRunner(drop_factor=None) as patient:
        assert runner._timing(2.0)["slow_call"] == 6.0
        assert runner._timing(None)["slow_call"] is None
        assert patient._timing(2.0)["slow_call"] is None


Finding = int | list[float] | Exception
"""How many of three repeats were disturbed; disturbed repeats; or what was raised."""


class _Turns:
    """Stands for the worker of a runner: each turn of a program has the next of some findings."""

    def __init__(self, pool: Any, found: Sequence[Finding]) -> None:
        self.pool = pool
        self.found = iter(found)
        self.turns = 0
        self.aborted = False

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        assert function is measure_program
        self.turns += 1
        answer: Future[Any] = Future()
        match next(self.found):
            case Exception() as error:
                answer.set_exception(error)
            case list() as costs:
                answer.set_result({"costs": costs, "disturbed": len(costs), "redone": 1})
            case disturbed:
                costs = [float(self.turns)] * 3
                answer.set_result({"costs": costs, "disturbed": disturbed, "redone": 1})
        return answer

    def submit_timed(self, timeout: float, function: Any, *arguments: Any) -> Future[Any]:
        return self.pool.submit_timed(timeout, function, *arguments)

    def shutdown(self, wait: bool) -> None:
        self.pool.shutdown(wait=wait)

    def abort(self) -> None:
        self.aborted = True


def _turns(monkeypatch: pytest.MonkeyPatch, programs: int, *found: Finding) -> list[MeasureResult]:
    monkeypatch.setattr("measure.runner.PAUSE_SECONDS", 0.0)
    task = ansor.SearchTask(func="ansor.matmul", args=(4, 4, 4))
    inp = MeasureInput(task, ansor.State.initial(task.compute_dag))
    with LocalRunner() as runner:
        turns = _Turns(runner._pool, found)
        monkeypatch.setattr(runner, "_pool", turns)
        results = runner.run([inp] * programs, [BuildResult(b"object", entry_name="f")] * programs)
    assert turns.turns == len(found)
    return results


def test_a_program_that_a_load_disturbed_has_a_second_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = _turns(monkeypatch, 3, 2, 0, 1, 3, 0)
    assert (first.costs, first.disturbed, first.redone) == ((2.0,) * 3, 0, 5)
    # the median is of undisturbed repeats
    assert (second.costs, second.disturbed, second.redone) == ((3.0,) * 3, 1, 1)
    assert third.costs == (5.0,) * 3


def test_second_turns_become_rare_while_a_load_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    # program 1 with a second turn, 2 without, 3 with, 4 and 5 without, 6 with: that helps; 7 with
    found = _turns(monkeypatch, 7, 3, 3, 3, 3, 3, 3, 3, 3, 0, 3, 0)
    assert [one.disturbed for one in found] == [3, 3, 3, 3, 3, 0, 0]
    assert [one.redone for one in found] == [5, 1, 5, 1, 1, 5, 5]
    assert found[0].costs == (1.0,) * 3


def test_a_second_turn_that_fails_leaves_it_at_the_first_unless_the_answer_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = MeasureTimeoutError("it took too long"), WrongAnswerError("output 'C' differs")
    (first,) = _turns(monkeypatch, 1, 3, failed[0])
    assert (first.ok, first.costs) == (True, (1.0,) * 3)
    (second,) = _turns(monkeypatch, 1, 3, failed[1])
    assert second.error_no is MeasureErrorNo.WRONG_ANSWER


def test_a_program_that_is_called_once_tells_whether_that_was_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for share, disturbed in ((0.04, 0), (0.06, 1)):
        result = time_program(lambda _: 0.0, 3.0, FULL, first_share=share)
        assert result == TimeResult((3.0,), disturbed=disturbed)
    (only,) = _turns(monkeypatch, 1, [2.6])  # its timeout is 10 s
    assert (only.costs, only.disturbed) == ((2.6,), 1)
    (first,) = _turns(monkeypatch, 1, [0.1], 0)
    assert (first.costs, first.disturbed, first.redone) == ((2.0,) * 3, 0, 3)


def test_a_result_tells_how_sure_it_is() -> None:
    assert MeasureResult((Seconds(3.0), Seconds(1.0), Seconds(2.0))).interval == (1.0, 3.0)
    noisy = MeasureResult((Seconds(1.0),), disturbed=1, redone=2)
    assert noisy == MeasureResult((Seconds(1.0),))
