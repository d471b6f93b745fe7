"""Whether something else took the processor while a program was timed.

The system counts, for each thread, how long it was ready to run and had no core (Linux: the second number of
``/proc/self/task/*/schedstat``, in nanoseconds). On a quiet machine that is next to nothing; with another
load on as many cores as the program has threads it is a large part of the time. The spread of repeats tells
less: it is as large when a program itself is uneven, and nothing when the other load is steady.

A thread that waits is counted when it gets its core. One that gets none for long, because it was woken on
the core of the thread that works for it, or because a hypervisor has taken its core away, is told by that
other one: the pool counts the time for which threads ran shares whose own had not come by then. What a
hypervisor takes from the cores is counted, too, where it tells (Linux: the eighth number of ``/proc/stat``,
in ticks of 10 ms).

A core may be there all the time and be slow: others share its ports, or its clock is low. A short loop before
and after what is timed tells (`ansor.runtime.core_speed`); the part of its usual speed that a core lacks
counts like the same part of the time.

What nobody sees: caches and memory that others keep busy from cores of their own. And it cannot be told whom
a thread waited for: where a program runs on more threads than there are cores, its own threads wait for each
other, so there nothing counts as a disturbance.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from ansor.runtime.core_speed import CoreSpeed, core_speed
from ansor.runtime.pool import seconds_alone
from ansor.task.host import available_cores

DISTURBED: Final = 0.05
"""A timing is disturbed if threads lacked cores, or their speed, or worked for others for a larger share."""
_TASKS: Final = "/proc/self/task"
_CORES: Final = "/proc/stat"

Waited = Callable[[], float | None]
"""Gives the seconds that threads have waited for a core so far; None where nobody counts."""


def seconds_waited() -> float | None:
    """Tell how long the threads of this process have waited for a core so far [s]; None if unknown.

    Threads that ended are not counted any more, so a difference of two readings is at least zero only while
    all of them live.
    """
    try:
        threads = os.listdir(_TASKS)
    except OSError:
        return None
    total, known = 0, False
    for thread in threads:
        try:
            with open(f"{_TASKS}/{thread}/schedstat", "rb") as file:
                total += int(file.read().split()[1])
        except (OSError, IndexError, ValueError):  # It ended meanwhile, or the system does not count.
            continue
        known = True
    return total * 1e-9 if known else None


def waiting_clock(threads: int) -> Waited | None:
    """Choose what tells whether a program on that many threads was disturbed.

    Returns
    -------
    Waited or None
        A `DisturbanceClock`; None if there are more threads than cores, which take the cores from each other.
    """
    return DisturbanceClock(core_speed(threads)) if threads <= available_cores() else None


class DisturbanceClock:
    """`seconds_disturbed`, and what slow cores cost: the mean of what two readings found lacking.

    A reading takes some tenths of a millisecond.
    """

    def __init__(self, speed: CoreSpeed) -> None:
        self._speed = speed
        self._lost = 0.0
        self._last: tuple[float, float] | None = None

    def __call__(self) -> float:
        counted, lacking, now = seconds_disturbed() or 0.0, self._speed.lacking(), time.perf_counter()
        if self._last is not None:
            then, lacked = self._last
            self._lost += 0.5 * (lacked + lacking) * (now - then)
        self._last = now, lacking
        return counted + self._lost


def seconds_disturbed() -> float | None:
    """Tell for how long threads have waited for cores, lost them, or done the work of others [s]."""
    waited = seconds_waited()
    return None if waited is None else waited + seconds_alone() + seconds_stolen()


def seconds_stolen() -> float:
    """Tell what a hypervisor has taken of this process's cores so far [s]; 0 where it does not tell.

    Ticks are long: one that ends in a timing may have begun before it.
    """
    try:
        with open(_CORES, "rb") as file:
            lines = [line.split() for line in file.read().splitlines() if line.startswith(b"cpu")]
        names = {f"cpu{core}".encode() for core in os.sched_getaffinity(0)}
        return sum(int(line[8]) for line in lines if line[0] in names) / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, IndexError, ValueError):  # Another system, or one that does not count.
        return 0.0


def waited_share(before: float | None, after: float | None, seconds: float) -> float:
    """Tell the share of `seconds` for which threads waited between two readings; 0 if that is unknown."""
    if before is None or after is None or seconds <= 0:
        return 0.0
    return max(0.0, after - before) / seconds


def watched(timed: Callable[[int], float], number: int, waited: Waited | None) -> tuple[float, float]:
    """Run something so often; give the seconds that took, and the share for which threads waited."""
    before = None if waited is None else waited()
    seconds = timed(number)
    return seconds, 0.0 if waited is None else waited_share(before, waited(), seconds)
