"""Whether something else took the processor while a program was timed.

The system counts, for each thread, how long it was ready to run and had no core (Linux: the second number of
``/proc/self/task/*/schedstat``, in nanoseconds). On a quiet machine that is next to nothing; with another
load on as many cores as the program has threads it is a large part of the time. The spread of repeats tells
less: it is as large when a program itself is uneven, and nothing when the other load is steady.

What it does not see: what a hypervisor takes from a virtual machine, a lower clock, and memory that others
keep busy from cores of their own. And it cannot tell whom a thread waited for: where a program runs on more
threads than there are cores, its own threads wait for each other, so there nothing counts as a disturbance.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from ansor.task.hardware import available_cores

DISTURBED: Final = 0.05
"""A timing is disturbed if threads waited for a core for more than this share of it."""
_TASKS: Final = "/proc/self/task"

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
        `seconds_waited`; None if there are more threads than cores, which take the cores from each other.
    """
    return seconds_waited if threads <= available_cores() else None


def waited_share(before: float | None, after: float | None, seconds: float) -> float:
    """Tell the share of `seconds` for which threads waited between two readings; 0 if that is unknown."""
    if before is None or after is None or seconds <= 0:
        return 0.0
    return max(0.0, after - before) / seconds
