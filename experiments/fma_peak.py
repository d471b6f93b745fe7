"""The fused multiply-add peak of this machine, measured: the ceiling that kernels are compared with.

A loop of independent vector multiply-adds on registers, written as LLVM IR, runs on as many threads as are
asked for. Nominal clock figures mislead (machines boost, throttle and are shared), so the ceiling is always
measured beside the thing that is compared with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ansor.codegen.compile import compile_ir
from ansor.codegen.machine import Machine
from ansor.runtime.jit import load_object
from ansor.runtime.multiply_adds import multiply_adds_ir

CHAINS = 16
"""Independent accumulators: enough to hide the latency of a multiply-add, few enough for 32 registers."""


def fma_peak(threads: int, steps: int = 1_000_000) -> tuple[Callable[[], None], float]:
    """A call that keeps `threads` cores busy with multiply-adds, and its float operations [flop]."""
    machine = Machine.host()
    lanes = machine.vector_bits // 32
    code = load_object(compile_ir(multiply_adds_ir(lanes, CHAINS), machine), ["multiply_adds"])
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code["multiply_adds"])
    operands = [(ctypes.c_float * (2 * lanes))(*([0.5] * (2 * lanes))) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads)

    def run() -> None:
        list(pool.map(lambda block: function(ctypes.addressof(block), steps), operands))

    run.code = code  # type: ignore[attr-defined]  # the code lives as long as the call
    return run, 2.0 * CHAINS * lanes * steps * threads
