"""How long a program is timed: as long as it takes to know what it is good for.

A program that is several times slower than the best one known will not be chosen, and the search learns
little from its third digit: it is timed once, for about a millisecond. One that may be the best gets all the
repeats. What is known is said by who asks (`MeasureInput.rival`), so nothing here remembers anything.

Repeats that another load on the machine disturbed are done again (`ansor.runtime.timing.time_calls`), where
that can be told (`ansor.runtime.interference`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, inf
from typing import Any, Final

from ansor.runtime.interference import Waited
from ansor.runtime.timing import TimeResult, time_calls

SHORT_MS: Final = 1.0
"""Least duration [ms] of the one repeat of a program that is too slow to be chosen; wake-up of threads is in
it, which must not decide."""


def time_program(
    timed: Callable[[int], float],
    first: float,
    timing: Mapping[str, Any],
    flush: Callable[[], None] | None = None,
    waited: Waited | None = None,
) -> TimeResult:
    """Time a program after its first call.

    Parameters
    ----------
    timed
        Calls it so often and gives the seconds that took.
    first
        What the first call took [s]; it counts as the untimed one that every timing begins with.
    timing
        `number`, `repeat`, `min_repeat_ms` of `time_calls`, of which fewer calls are made where these take
        `min_repeat_ms`; `longest_call`: one that takes longer [s] is not called again, and its first call is
        the result; `slow_call`: one that takes longer [s], also when called again, gets one short repeat.
    flush
        Called before each repeat; empties the caches.
    waited
        Of `time_calls`: what tells a disturbance.
    """
    if first > (timing.get("longest_call") or inf):
        return TimeResult((first,))
    number, repeat, shortest = timing["number"], timing["repeat"], timing["min_repeat_ms"]
    slow = timing.get("slow_call") or inf
    calls = _Continued(timed, first)
    if first > slow:
        once = time_calls(
            calls,
            number=1,
            repeat=1,
            min_repeat_ms=min(shortest, SHORT_MS),
            before_repeat=flush,
            waited=waited,
        )
        if once.mean > slow:
            return once
        first = once.mean
    return time_calls(
        calls,
        number=_calls_worth_timing(number, shortest, first),
        repeat=repeat,
        min_repeat_ms=shortest,
        before_repeat=flush,
        waited=waited,
    )


class _Continued:
    """A timed function whose first call has been made already."""

    def __init__(self, timed: Callable[[int], float], first: float) -> None:
        self._timed = timed
        self._first: float | None = first

    def __call__(self, number: int) -> float:
        first, self._first = self._first, None
        return self._timed(number) if first is None else first


def _calls_worth_timing(number: int, min_repeat_ms: float, first: float) -> int:
    """Calls per repeat: as many as asked for, but a slow program needs no more than fill `min_repeat_ms`."""
    if min_repeat_ms <= 0 or first <= 0:
        return number
    return max(1, min(number, ceil(min_repeat_ms / (1e3 * first))))
