"""Timing compiled functions: the loop around the calls, and the clock, are compiled code too.

A call from Python costs a third of a microsecond and afterwards waits for the interpreter lock; neither
belongs in a measurement. So a small loop, one per number of arguments, calls the function `number` times
between two readings of the system's monotonic clock.

Source: the timing procedure of TVM's `time_evaluator` (`number`, `repeat`, `min_repeat_ms`).
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from ansor.checks import check_integer, check_number
from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.medians import median_interval, median_spread, repeats_text
from ansor.runtime.interference import DISTURBED, Waited, watched
from ansor.runtime.jit import LoadedCode, load_object

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
        low, high = self.interval
        return (
            f"mean {self.mean * 1e3:.4g} ms, median {self.median * 1e3:.4g} ms "
            f"({low * 1e3:.4g} .. {high * 1e3:.4g}), "
            f"min {self.min * 1e3:.4g} ms, std {self.std * 1e3:.2g} ms "
            f"({repeats_text(len(self.results), self.disturbed, self.redone)})"
        )


def time_calls(
    timed: Callable[[int], float],
    *,
    number: int,
    repeat: int,
    min_repeat_ms: float,
    before_repeat: Callable[[], object] | None = None,
    waited: Waited | None = None,
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
    waited
        Tells how long threads have waited for a core (`ansor.runtime.interference.seconds_disturbed`); None:
        nothing counts as disturbed.
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
            seconds, share = watched(timed, number, waited)
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


def compiled_timer(entry: int, addresses: tuple[int, ...], sizes: tuple[int, ...]) -> Callable[[int], float]:
    """Make the `timed` of `time_calls` for a function in this process.

    The caller keeps the function's code and the arrays alive while it uses the timer.
    """
    code = _timing_loop(len(addresses), len(sizes))
    loop = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code["timed"])
    block = (ctypes.c_int64 * max(1, len(addresses) + len(sizes)))(*map(_signed, addresses), *sizes)

    def timed(number: int, _keep: Any = code) -> float:
        start = time.perf_counter_ns()
        nanoseconds = int(loop(entry, ctypes.addressof(block), number))
        elapsed = time.perf_counter_ns() - start
        return (nanoseconds if _clock() is not None else elapsed) * 1e-9

    return timed


def _signed(address: int) -> int:
    return address - (1 << 64) if address >= 1 << 63 else address


def _clock() -> int | None:
    """Give the number of the monotonic clock for clock_gettime; None where there is no such function."""
    return {"linux": 1, "darwin": 6}.get(sys.platform)


@cache
def _timing_loop(pointers: int, sizes: int) -> LoadedCode:
    return load_object(compile_ir(timing_ir(pointers, sizes, _clock()), Machine.host()), ("timed",))


def timing_ir(pointers: int, sizes: int, clock: int | None) -> str:
    """Write `i64 timed(ptr function, ptr arguments, i64 number)`, which gives nanoseconds.

    Without a clock it gives 0. The argument block holds 8 bytes for each pointer, then for each size.
    """
    types = ["ptr"] * pointers + ["i64"] * sizes
    loads = "\n".join(
        f"  %place.{i} = getelementptr i64, ptr %arguments, i64 {i}\n"
        f"  %a.{i} = load {kind}, ptr %place.{i}, align 8"
        for i, kind in enumerate(types)
    )
    passed = ", ".join(f"{kind} %a.{i}" for i, kind in enumerate(types))
    now = "ret i64 0"
    declaration = ""
    if clock is not None:
        declaration = "declare i32 @clock_gettime(i32, ptr)"
        now = f"""%time = alloca [2 x i64], align 8
  %error = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %s = load i64, ptr %time, align 8
  %second = getelementptr [2 x i64], ptr %time, i64 0, i64 1
  %ns = load i64, ptr %second, align 8
  %whole = mul i64 %s, 1000000000
  %sum = add i64 %whole, %ns
  ret i64 %sum"""
    return f"""{declaration}
define internal i64 @now() noinline {{
  {now}
}}
define i64 @timed(ptr %function, ptr %arguments, i64 %number) {{
entry:
{loads}
  %start = call i64 @now()
  %any = icmp sgt i64 %number, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void %function({passed})
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %number
  br i1 %more, label %loop, label %done
done:
  %end = call i64 @now()
  %elapsed = sub i64 %end, %start
  ret i64 %elapsed
}}
"""
