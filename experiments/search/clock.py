"""How fast this machine's clock runs, by which rates recorded elsewhere are scaled; and whether it is quiet.

The loop is one chain of dependent integer operations, a multiplication and an exclusive or per step. On the
x86-64 cores of the last years these take 3 + 1 cycles, whatever else the core could do at the same time, so
the loop's time tells the clock: cycles over seconds. The recorded rates come from Zen 4 cores at 3.7 GHz,
where a step takes 4 / 3.7 = 1.08 ns.

What the scale corrects: clock frequency, and the share of a core that other processes take away. What it does
not: caches, memory, and how many independent operations a core of another make does per cycle; a peer that
would gain or lose by these is scaled a little wrongly.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.runtime.jit import load_object
from experiments.harness import Bench, Estimate

RECORDED_GHZ: Final = 3.7
"""Clock of the cores on which the rates of peers were recorded."""
CYCLES_PER_STEP: Final = 4
STEPS: Final = 10_000_000
FACTOR: Final = 6364136223846793005
QUIET: Final = 0.95
"""Least share of its cores that a process should get while it is measured."""

CHAIN: Final = f"""
define i64 @chain(i64 %start, i64 %steps) {{
entry:
  br label %loop
loop:
  %n = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = phi i64 [ %start, %entry ], [ %z, %loop ]
  %y = mul i64 %x, {FACTOR}
  %z = xor i64 %y, %n
  %next = add i64 %n, 1
  %more = icmp ult i64 %next, %steps
  br i1 %more, label %loop, label %exit
exit:
  ret i64 %z
}}
"""


@cache
def chain() -> Callable[[int, int], int]:
    """The compiled loop: from a first number and a count of steps to the last number."""
    code = load_object(compile_ir(CHAIN, Machine.host()), ["chain"])
    function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)(code["chain"])

    def run(start: int, steps: int) -> int:
        return int(function(start, steps))

    run.code = code  # type: ignore[attr-defined]  # the code lives as long as the call
    return run


class Scale:
    """Measures how fast this machine is now, relative to the one of the recorded rates."""

    def __init__(self) -> None:
        self._chain = chain()
        self._chain(1, STEPS)

    def measure(self) -> float:
        """Measure once, about 20 ms: this clock over the recorded one."""
        start = time.perf_counter()
        self._chain(1, STEPS)
        return scale_of(time.perf_counter() - start)


def quiet_share(threads: int, steps: int = STEPS) -> float:
    """
    Measure how much of its cores this process gets: CPU time over wall time of a loop on each of them.

    Well below 1 something else runs, and libraries whose threads wait for each other suffer far more from
    that than programs that wait for none.
    """
    loop = chain()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def run(start: int) -> tuple[float, float]:
        if 0 < len(cores) <= threads:
            # A scheduler may leave two new threads on one core for as long as the loop takes.
            os.sched_setaffinity(0, {cores[start % len(cores)]})
        wall, cpu = time.perf_counter(), time.thread_time()
        loop(start, steps)
        return time.thread_time() - cpu, time.perf_counter() - wall

    with ThreadPoolExecutor(threads) as pool:
        spent = list(pool.map(run, range(threads)))
    return min(cpu / wall for cpu, wall in spent)


def report_quiet(bench: Bench, shares: Sequence[float]) -> None:
    """Say whether the machine was quiet, without which no figure here means much; `shares` as measured."""
    least = None if bench.quick else QUIET
    bench.add("this machine: share of its cores that a run gets", Estimate.of(shares), "of 1", at_least=least)


def scale_of(seconds: float) -> float:
    """Turn the time of `STEPS` steps [s] into this clock over the recorded one."""
    return CYCLES_PER_STEP * STEPS / seconds / (RECORDED_GHZ * 1e9)
