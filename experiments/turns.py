"""Timing things in turn, again and again, never one after the other, so that the machine's mood hits all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Final

from ansor.runtime.interference import DISTURBED, Waited, waited_share

IDLE: Final = 0.1
"""A process that uses less than this share of one core rests."""
WARM_SECONDS: Final = 0.01
"""Untimed calls before each timing [s]."""
REDONE: Final = 2
"""A timing that something else disturbed is done again, so many times at most."""
PATIENCE: Final = 1.0
"""Seconds in which another load may end before a round is taken again."""

Timer = Callable[[int], float]
"""Runs something so many times and gives the seconds that it took."""


def timer_of(call: Callable[[], object]) -> Timer:
    """Make a timer that calls from Python, which adds some tenths of a microsecond to every call."""

    def timed(number: int) -> float:
        start = time.perf_counter()
        for _ in range(number):
            call()
        return time.perf_counter() - start

    return timed


def seconds_per_call(timer: Timer, min_seconds: float = 0.02) -> float:
    """Time one call [s]: once, or as often as fills `min_seconds`."""
    number = 1
    while True:
        elapsed = timer(number)
        if elapsed >= min_seconds:
            return elapsed / number
        number = max(number + 1, min(10 * number, round(1.2 * number * min_seconds / max(elapsed, 1e-9))))


def least_disturbed(timer: Timer, min_seconds: float, waited: Waited | None) -> float:
    """
    Time one call [s] as `seconds_per_call` does; again, if threads had to wait for their cores meanwhile.

    Parameters
    ----------
    waited
        How long they have waited so far (`ansor.runtime.interference.waiting_clock`); None: nobody counts.
    """
    found: list[tuple[float, float]] = []
    for _ in range(1 + REDONE):
        before, start = waited and waited(), time.perf_counter()
        seconds = seconds_per_call(timer, min_seconds)
        elapsed = time.perf_counter() - start
        found.append((waited_share(before, waited and waited(), elapsed), seconds))
        if found[-1][0] <= DISTURBED:
            break
    return min(found)[1]


def rest(seconds: float, at_most: float = 0.5) -> None:
    """
    Pause until the threads of this process do nothing any more, for at least `seconds` and not long after.

    Those of OpenBLAS go on spinning for a tenth of a second after their work, on the cores of whoever comes
    next, who would take twice his time.
    """
    waited = 0.0
    while seconds and waited < at_most:
        before = time.process_time()
        time.sleep(seconds)
        waited += seconds
        if time.process_time() - before < IDLE * seconds:
            return


def interleave(
    calls: Mapping[str, Callable[[], object]],
    repeats: int = 11,
    min_seconds: float = 0.02,
    settle_seconds: float = 0.05,
) -> dict[str, list[float]]:
    """Time several Python calls in turn: see `take_turns`."""
    timers = {name: timer_of(call) for name, call in calls.items()}
    return take_turns(timers, repeats, min_seconds, settle_seconds)


def take_turns(
    timers: Mapping[str, Timer],
    repeats: int = 11,
    min_seconds: float = 0.02,
    settle_seconds: float = 0.05,
) -> dict[str, list[float]]:
    """
    Time several things in turn.

    Each round times every one once; the order is reversed from round to round. One round is run
    unrecorded. Before each timing comes a pause of at least `settle_seconds` [s] (`rest`), and calls for
    `WARM_SECONDS` that do not count: a system may wake the threads of a program on one core at first.

    Returns
    -------
    dict
        Seconds per call of each round, by name: element `i` of all lists was taken side by side.
    """
    rounds = _rounds(timers, min_seconds, settle_seconds, None)
    next(rounds)
    return _by_name(list(islice(rounds, repeats)))


def fastest(timers: Mapping[str, Timer]) -> str:
    """Tell which of some timers has the least time, after a short look."""
    times = take_turns(timers, 3, 5e-3, 2e-3)
    return min(times, key=lambda name: min(times[name]))


@dataclass(frozen=True, slots=True)
class QuietTurns:
    """
    What `quiet_turns` found.

    Attributes
    ----------
    times
        As `take_turns` gives them, of the rounds that count.
    quiet
        How quiet the machine was beside each of these.
    again
        Rounds that were taken because others were disturbed.
    """

    times: dict[str, list[float]]
    quiet: list[float]
    again: int


def quiet_turns(
    timers: Mapping[str, Timer],
    repeats: int,
    min_seconds: float,
    settle_seconds: float,
    *,
    quiet: Callable[[], float],
    least: float,
    waited: Waited | None = None,
) -> QuietTurns:
    """
    Time several things in turn as `take_turns` does, and again what something else disturbed.

    A burst is over soon: a timing during which threads waited for their cores is repeated at once
    (`least_disturbed`). A load that lasts disturbs whole rounds, and these are repeated, not single
    timings: what is compared stays side by side. So long as fewer than `repeats` rounds were quiet, there are
    others, `repeats` of them at most, each after a pause of `PATIENCE`; the quietest rounds count, the first
    ones of those that are quiet enough.

    Parameters
    ----------
    quiet
        Tells how quiet the machine is, 1 at best; asked before and after each round, the smaller one counts.
    least
        From which value on a round is quiet enough.
    waited
        See `least_disturbed`.
    """
    rounds = _rounds(timers, min_seconds, settle_seconds, waited)
    next(rounds)
    found: list[tuple[float, dict[str, float]]] = []
    now = quiet()
    while len(found) < 2 * repeats and sum(share >= least for share, _ in found) < repeats:
        if len(found) >= repeats:
            time.sleep(PATIENCE)
            now = quiet()
        before, one = now, next(rounds)
        now = quiet()
        found.append((min(before, now), one))
    quietest = sorted(range(len(found)), key=lambda i: -min(found[i][0], least))[:repeats]
    kept = [found[i] for i in sorted(quietest)]
    return QuietTurns(_by_name([one for _, one in kept]), [share for share, _ in kept], len(found) - repeats)


def _rounds(
    timers: Mapping[str, Timer], min_seconds: float, settle_seconds: float, waited: Waited | None
) -> Iterator[dict[str, float]]:
    """Give round after round, seconds per call by name; the first one warms up."""
    names = list(timers)
    for turn in count():
        times = {}
        for name in names if turn % 2 else reversed(names):
            rest(settle_seconds)
            seconds_per_call(timers[name], min(min_seconds, WARM_SECONDS))
            times[name] = least_disturbed(timers[name], min_seconds, waited)
        yield {name: times[name] for name in names}


def _by_name(rounds: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    return {name: [one[name] for one in rounds] for name in rounds[0]}
