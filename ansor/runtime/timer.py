"""Timers of compiled functions: the loop around the calls, and the clock, are compiled code too.

A call from Python costs a third of a microsecond and afterwards waits for the interpreter lock; neither
belongs in a measurement. So a small loop, one per number of arguments, calls the function `number` times
between two readings of the system's monotonic clock.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.runtime.jit import LoadedCode, load_object


def compiled_timer(entry: int, addresses: tuple[int, ...], sizes: tuple[int, ...]) -> Callable[[int], float]:
    """Make the `timed` of `ansor.runtime.timing.time_calls` for a function in this process.

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
