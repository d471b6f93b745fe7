"""Whether something else took the processor, or slowed it down, while a program was timed.

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
and after a kernel tells (`ansor.runtime.core_speed`); the part of its usual speed that a core lacks counts
like the same part of the time.

What nobody sees: caches and memory that others keep busy from cores of their own. And it cannot be told whom
a thread waited for: where a program runs on more threads than there are cores, its own threads wait for each
other, so there nothing counts as a disturbance.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ansor.runtime.core_speed import CoreSpeed, core_speed
from ansor.runtime.pool import seconds_alone
from ansor.task.host import available_cores

DISTURBED: Final = 0.05
"""A timing is disturbed if threads lacked cores, or their speed, or worked for others for a larger share."""
_CORES: Final = "/proc/stat"

Waited = Callable[[], float | None]
"""Gives the seconds that threads have waited for a core so far; None where nobody counts."""


def seconds_waited(process: int | None = None) -> float | None:
    """Tell how long the threads of a process have waited for a core so far [s]; None if unknown.

    Threads that ended are not counted any more, so a difference of two readings is at least zero only while
    all of them live.

    Parameters
    ----------
    process
        Its number; None: this one.
    """
    tasks = f"/proc/{'self' if process is None else process}/task"
    try:
        threads = os.listdir(tasks)
    except OSError:
        return None
    total, known = 0, False
    for thread in threads:
        try:
            with open(f"{tasks}/{thread}/schedstat", "rb") as file:
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
        `seconds_disturbed`; None if there are more threads than cores, which take the cores from each other.
    """
    return seconds_disturbed if threads <= available_cores() else None


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


Watch = Callable[[Callable[[int], float], int], tuple[float, float]]
"""Runs something so often; gives the seconds that took, and the share of them that something else took."""


def unwatched(timed: Callable[[int], float], number: int) -> tuple[float, float]:
    """Run something so often, and count nothing as a disturbance: a `Watch`."""
    return timed(number), 0.0


@dataclass(frozen=True, slots=True)
class CountingWatch:
    """Goes by a clock of what the system counts."""

    waited: Waited

    def __call__(self, timed: Callable[[int], float], number: int) -> tuple[float, float]:
        before = self.waited()
        seconds = timed(number)
        return seconds, waited_share(before, self.waited(), seconds)


@dataclass(frozen=True, slots=True)
class CoreWatch:
    """Adds to what another finds the mean of what cores lacked before and after it."""

    counted: Watch
    speed: CoreSpeed

    def __call__(self, timed: Callable[[int], float], number: int) -> tuple[float, float]:
        before = self.speed.lacking()
        seconds, share = self.counted(timed, number)
        return seconds, share + 0.5 * (before + self.speed.lacking())


def watch_kernel(threads: int, in_pool: bool) -> Watch:
    """Choose what watches the timings of a kernel.

    Parameters
    ----------
    threads
        On which it runs. If they are more than there are cores nothing counts.
    in_pool
        Whether it runs on this process's pool, where its cores can be tried. A loaded library has its own.
    """
    waited = waiting_clock(threads)
    if waited is None:
        return unwatched
    counted = CountingWatch(waited)
    return CoreWatch(counted, core_speed(threads)) if in_pool else counted
