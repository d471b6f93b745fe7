"""Cores that run and are slow: what is usual, what counts, and how that becomes a disturbance."""

from __future__ import annotations

import pytest

from ansor.codegen.machine import Machine
from ansor.runtime import interference
from ansor.runtime.core_speed import FEW, LATELY, TOLERANCE, CoreSpeed, core_speed
from ansor.runtime.interference import DisturbanceClock, waiting_clock
from ansor.runtime.multiply_adds import MultiplyAdd, timer_on_all_threads
from ansor.runtime.timing import TimeResult, time_calls
from ansor.task.host import available_cores


def _speed(*seconds: float) -> CoreSpeed:
    given = iter(seconds)
    return CoreSpeed(lambda: next(given))


def test_a_loop_that_takes_twice_as_long_as_usual_lacks_half_of_the_speed() -> None:
    speed = _speed(*[1.0] * FEW, 2.0, 1.0, 1.0 + TOLERANCE, 0.5, 0.0)
    assert [speed.lacking() for _ in range(FEW)] == [0.0] * FEW
    assert speed.lacking() == pytest.approx(1 - (1 + TOLERANCE) / 2)
    assert [speed.lacking() for _ in range(4)] == [0.0] * 4


def test_of_few_loops_none_is_slow() -> None:
    speed = _speed(1.0, *[9.0] * FEW)
    assert [speed.lacking() for _ in range(FEW)] == [0.0] * FEW
    assert speed.lacking() == 0.0  # most were as slow


def test_what_is_slow_now_and_then_is_not_usual_and_what_stays_slow_is() -> None:
    spells = [1.0, 2.0, 2.0] * FEW
    speed = _speed(*spells, *[3.0] * LATELY)
    assert [speed.lacking() > 0 for _ in spells][FEW:] == [took > 1 for took in spells][FEW:]
    later = [speed.lacking() for _ in range(LATELY)]
    assert later[0] > 0.5
    assert later[-1] == 0.0


def test_what_slow_cores_cost_is_time_that_was_disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the mean of what both readings found, beside what the system counts."""
    now = iter([10.0, 11.0, 13.0, 14.0])
    monkeypatch.setattr(interference.time, "perf_counter", lambda: next(now))
    counted = iter([1.0, 1.25, None, 1.25])
    monkeypatch.setattr(interference, "seconds_disturbed", lambda: next(counted))
    half = 2.0 * (1 + TOLERANCE)
    clock = DisturbanceClock(_speed(*[1.0] * FEW, 1.0, half, half, 1.0))
    for _ in range(FEW):
        clock._speed.lacking()
    readings = [clock() for _ in range(4)]
    assert readings == pytest.approx([1.0, 1.25 + 0.25, 0.25 + 1.0, 1.25 + 1.25 + 0.25])


def test_a_repeat_on_slow_cores_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "seconds_disturbed", lambda: 0.0)
    now = 0.0

    def time_passed() -> float:
        return now

    monkeypatch.setattr(interference.time, "perf_counter", time_passed)
    took = iter([9.0, 1.0, 2.0, 1.25])

    def timed(_: int) -> float:
        nonlocal now
        seconds = next(took)
        now += seconds
        return seconds

    speed = _speed(*[1.0] * FEW, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0)
    for _ in range(FEW):
        speed.lacking()
    clock = DisturbanceClock(speed)
    result = time_calls(timed, number=1, repeat=2, min_repeat_ms=0, waited=clock)
    assert result == TimeResult((1.0, 1.25), disturbed=0, redone=1)


def test_the_loop_runs_on_this_machine() -> None:
    speed = core_speed(available_cores())
    assert all(0.0 <= speed.lacking() < 1.0 for _ in range(2 * FEW))
    assert core_speed(available_cores()) is speed
    clock = waiting_clock(available_cores())
    assert clock is not None
    first = clock()
    assert first is not None
    assert (clock() or 0.0) >= 0.0
    assert waiting_clock(available_cores() + 1) is None


def test_more_steps_on_all_threads_take_longer() -> None:
    kind = MultiplyAdd.of_floats("float", Machine.host().vector_bits // 32)
    few, many = (timer_on_all_threads(kind, steps, 4) for steps in (10_000, 400_000))
    few(1)
    assert min(many(1) for _ in range(3)) > 2 * min(few(1) for _ in range(9))
