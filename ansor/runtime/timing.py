"""Timing functions: how often they are called, what is done again, and what the results say.

Source: the timing procedure of TVM's `time_evaluator` (`number`, `repeat`, `min_repeat_ms`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ansor.checks import check_integer, check_number
from ansor.medians import median_interval, median_spread, repeats_text
from ansor.runtime.interference import DISTURBED, Watch, unwatched

GROWTH = 1.618
"""Least factor by which `number` grows when a repeat was shorter than asked."""
MOST_CALLS: Final = 1 << 40
"""More calls, of a nanosecond each, take 18 minutes."""
NOTHING: Final = 1 << 20
"""So many calls take some time by any clock, unless there is nothing to do in them."""


@dataclass(frozen=True, slots=True)
class TimeResult:
    """Seconds per call: one mean over `number` calls for each repeat, and their statistics.

    Attributes
    ----------
    results
        One mean for each repeat [s].
    disturbed
        How many of these repeats something else on the machine disturbed (`ansor.runtime.interference`).
    redone
        How many others were disturbed, and done again.
    """

    results: tuple[float, ...]
    disturbed: int = 0
    redone: int = 0

    @property
    def mean(self) -> float:
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        return statistics.median(self.results)

    @property
    def std(self) -> float:
        """Population standard deviation, as numpy's default."""
        return statistics.pstdev(self.results)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the true median lies: see `ansor.medians.median_interval`."""
        return median_interval(self.results)

    @property
    def spread(self) -> float | None:
        """Half the interval as a share of the median, 0.01 for plus or minus 1 %; None for one repeat."""
        return median_spread(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    def __str__(self) -> str:
        repeats = repeats_text(len(self.results), self.disturbed, self.redone)
        if len(self.results) == 1:
            return f"mean {self.mean * 1e3:.4g} ms ({repeats}: more of them tell how sure that is)"
        low, high = self.interval
        return (
            f"mean {self.mean * 1e3:.4g} ms, median {self.median * 1e3:.4g} ms "
            f"({low * 1e3:.4g} .. {high * 1e3:.4g}), "
            f"min {self.min * 1e3:.4g} ms, std {self.std * 1e3:.2g} ms "
            f"({repeats})"
        )


def time_calls(
    timed: Callable[[int], float],
    *,
    number: int,
    repeat: int,
    min_repeat_ms: float,
    before_repeat: Callable[[], object] | None = None,
    watch: Watch = unwatched,
    most_redone: int | None = None,
) -> TimeResult:
    """Repeat a measurement.

    A repeat that another load on the machine disturbed is done again, in all `most_redone` times at most; the
    less disturbed one counts. If both were, the load is there to stay, and nothing more is done again.

    Parameters
    ----------
    timed
        Runs the function that many times and gives the total time [s].
    number
        Calls per repeat at first.
    repeat
        Repeats, and results.
    min_repeat_ms
        Least duration of a repeat [ms]: shorter ones are discarded and done again with a larger `number`. One
        of `NOTHING` calls or more that takes no time at all counts.
    before_repeat
        Called, untimed, before every run of `number` calls; for flushing caches.
    watch
        Tells what something else disturbed (`ansor.runtime.interference.watch_kernel`).
    most_redone
        None: as often as there are repeats.

    Raises
    ------
    DefinitionError
        If `number` or `repeat` is no integer from 1 to `MOST_CALLS`, or `min_repeat_ms` negative or not
        finite.
    """
    number = check_integer("number", number, low=1, high=MOST_CALLS)
    repeat = check_integer("repeat", repeat, low=1, high=MOST_CALLS)
    min_repeat_ms = check_number("min_repeat_ms", min_repeat_ms, low=0)
    most_redone = repeat if most_redone is None else most_redone
    timed(1)  # untimed: loads code and data, starts threads
    results: list[float] = []
    disturbed, redone, lasting = 0, 0, False
    for _ in range(repeat):
        best: tuple[float, float] | None = None
        again = False
        while True:
            if before_repeat is not None:
                before_repeat()
            seconds, share = watch(timed, number)
            if seconds * 1e3 < min_repeat_ms and (seconds > 0 or number < NOTHING):
                number = _enough_calls(number, seconds, min_repeat_ms)
                continue
            found = (share, seconds / number)
            best = found if best is None or share < best[0] else best
            lasting = lasting or (share > DISTURBED and again)
            if share <= DISTURBED or lasting or redone >= most_redone:
                break
            redone += 1
            again = True
        results.append(best[1])
        disturbed += best[0] > DISTURBED
    return TimeResult(tuple(results), disturbed, redone)


def _enough_calls(number: int, seconds: float, min_repeat_ms: float) -> int:
    """Calls that should take `min_repeat_ms`, where `number` took `seconds`, which was less."""
    per_call_ms = seconds * 1e3 / number
    wanted = min_repeat_ms / per_call_ms + 1 if per_call_ms > 0 else 0.0
    return int(min(max(wanted, number * GROWTH, number + 1), MOST_CALLS))
