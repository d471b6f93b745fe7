"""Cores that run and are slow: what is usual, what counts, and how that becomes a disturbance."""

from __future__ import annotations

import pytest

from ansor.codegen.machine import Machine
from ansor.runtime import interference
from ansor.runtime import multiply_add_timer as timer_module
from ansor.runtime.core_speed import FEW, LATELY, TOLERANCE, CoreSpeed, core_speed
from ansor.runtime.interference import CoreWatch, CountingWatch, unwatched, watch_kernel
from ansor.runtime.multiply_add_timer import multiply_add_timer
from ansor.runtime.multiply_adds import MultiplyAdd
from ansor.runtime.pool import kernel_imports
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


def test_slow_cores_disturb_by_the_mean_of_what_they_lacked_before_and_after() -> None:
    """Beside what the system counts, which is not asked while the loop runs: it has threads woken."""
    half = 2.0 * (1 + TOLERANCE)
    given = iter([*[1.0] * FEW, 1.0, half, half, half, 1.0, 1.0])
    waited = 0.0

    def loop() -> float:
        nonlocal waited
        waited += 7.0
        return next(given)

    def timed(number: int) -> float:
        nonlocal waited
        waited += 0.5
        return 2.0 * number

    speed = CoreSpeed(loop)
    watch = CoreWatch(CountingWatch(lambda: waited), speed)
    for _ in range(FEW):
        speed.lacking()
    assert [watch(timed, 1) for _ in range(3)] == [
        (2.0, pytest.approx(0.25 + share)) for share in (0.25, 0.5, 0.0)
    ]


def test_a_repeat_on_slow_cores_is_done_again() -> None:
    seconds = iter([9.0, 1.0, 2.0, 1.25])
    speed = _speed(*[1.0] * FEW, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0)
    for _ in range(FEW):
        speed.lacking()
    watch = CoreWatch(unwatched, speed)
    result = time_calls(lambda _: next(seconds), number=1, repeat=2, min_repeat_ms=0, watch=watch)
    assert result == TimeResult((1.0, 1.25), disturbed=0, redone=1)


def test_what_watches_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop tries the cores of this process's pool, and only where they are enough."""
    cores = available_cores()
    watch = watch_kernel(cores, in_pool=True)
    assert isinstance(watch, CoreWatch)
    assert watch.speed is core_speed(cores)
    seconds, share = watch(lambda number: 0.25 * number, 4)
    assert seconds == 1.0
    assert share >= 0.0
    assert watch_kernel(cores, in_pool=False) == CountingWatch(interference.seconds_disturbed)
    assert watch_kernel(cores + 1, in_pool=True) is unwatched
    monkeypatch.setattr(interference, "available_cores", lambda: 0)
    assert watch_kernel(1, in_pool=True) is unwatched


def test_the_loop_runs_on_the_threads_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """On no more than its target has, however many the pool has."""
    limits: list[int | None] = []

    def imports(limit: int | None = None) -> dict[str, int]:
        limits.append(limit)
        return kernel_imports(limit)

    monkeypatch.setattr(timer_module, "kernel_imports", imports)
    core_speed.cache_clear()
    for threads in (1, 2, 1):
        core_speed(threads)
    core_speed.cache_clear()
    assert limits == [1, 2]


def test_more_steps_on_all_threads_take_longer() -> None:
    kind = MultiplyAdd.of_floats("float", Machine.host().vector_bits // 32)
    few, many = (multiply_add_timer(kind, steps, 4) for steps in (10_000, 400_000))
    few(1)
    assert min(many(1) for _ in range(3)) > 2 * min(few(1) for _ in range(9))
