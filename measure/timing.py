"""How long a program is timed: as long as it takes to know what it is good for.

A program that is several times slower than the best one known will not be chosen, and the search learns
little from its third digit: a few short repeats within some milliseconds do, and the fastest counts. One
that may be the best gets all the repeats. What is known is said by who asks (`MeasureInput.rival`), so
nothing here remembers anything.

The short repeats come first; where caches are emptied before each repeat, for slow programs only. A system
may wake the threads of a parallel loop on one core, and move one to another core only milliseconds later:
until then a program takes two to three times its time, on a machine on which nothing else runs. That must
neither condemn it nor be part of its first full repeat. They also tell how many calls a full repeat needs.

Repeats that another load on the machine disturbed are done again (`ansor.runtime.timing.time_calls`), where
that can be told (`ansor.runtime.interference`). Programs of which most repeats stay disturbed have a second
turn (`measure.second_chance`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, inf
from typing import Any, Final

from ansor.runtime.interference import DISTURBED, Watch, unwatched
from ansor.runtime.timing import TimeResult, time_calls

SHORT_MS: Final = 1.0
"""Least duration of a short repeat [ms]; waking threads for each call must not decide."""
SETTLING_MS: Final = 10.0
"""Time that a program spends in calls before it is timed in full [ms]: threads have found cores then."""
LOOKS: Final = 10
"""Short repeats at most."""
LOADED: Final = 2
"""So many times slower is a program that shares its cores with another load; that must not condemn it."""
HEADROOM: Final = 1.1
"""Repeats are planned to be so many times as long as they must be: one that is too short is thrown away."""


def time_program(
    timed: Callable[[int], float],
    first: float,
    timing: Mapping[str, Any],
    flush: Callable[[], None] | None = None,
    watch: Watch = unwatched,
    first_share: float = 0.0,
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
        the result; `slow_call`: one that takes longer [s] in all short repeats has no others; `all_calls`:
        what all calls may take together [s], so that there are fewer repeats of what takes long.
    flush
        Called before each repeat; empties the caches.
    watch
        Of `time_calls`: what tells a disturbance.
    first_share
        Share of the first call that something else took; it tells whether that one was disturbed.
    """
    if first > (timing.get("longest_call") or inf):
        return TimeResult((first,), disturbed=int(first_share > DISTURBED))
    number, repeat, shortest = timing["number"], timing["repeat"], timing["min_repeat_ms"]
    slow = timing.get("slow_call") or inf
    calls = _Counted(timed, first)
    looks: list[TimeResult] = []
    settling = SETTLING_MS if flush is None or first > slow else 0.0
    while len(looks) < LOOKS and (1e3 * calls.seconds < settling or (first > slow and not looks)):
        short = min(shortest, SHORT_MS)
        looks.append(
            time_calls(calls, number=1, repeat=1, min_repeat_ms=short, before_repeat=flush, watch=watch)
        )
    fastest = min(looks, key=lambda look: look.mean, default=TimeResult((first,)))
    if fastest.mean > slow * (LOADED if fastest.disturbed else 1):
        return fastest
    number = _calls_worth_timing(number, shortest, fastest.mean, is_sure=bool(looks))
    left = (timing.get("all_calls") or inf) - calls.seconds
    if number * fastest.mean > left:
        number, shortest = max(1, int(left / fastest.mean)), 0.0
    each = max(number * fastest.mean, shortest / 1e3)
    room = int(min(left / each, 2 * repeat)) if each > 0 else 2 * repeat
    return time_calls(
        calls,
        number=number,
        repeat=max(1, min(repeat, room)),
        min_repeat_ms=shortest,
        before_repeat=flush,
        watch=watch,
        most_redone=max(0, room - repeat),
    )


class _Counted:
    """A timed function whose first call has been made already, and the seconds that all calls took."""

    def __init__(self, timed: Callable[[int], float], first: float) -> None:
        self._timed = timed
        self._first: float | None = first
        self.seconds = first

    def __call__(self, number: int) -> float:
        first, self._first = self._first, None
        if first is not None:
            return first
        seconds = self._timed(number)
        self.seconds += seconds
        return seconds


def _calls_worth_timing(number: int, min_repeat_ms: float, seconds: float, is_sure: bool) -> int:
    """Calls per repeat: those that fill `min_repeat_ms`; not more than asked for after a first call alone."""
    if min_repeat_ms <= 0 or seconds <= 0:
        return number
    enough = ceil(HEADROOM * min_repeat_ms / (1e3 * seconds))
    return max(1, enough if is_sure else min(number, enough))
