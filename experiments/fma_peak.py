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

CHAINS = 16
"""Independent accumulators: enough to hide the latency of a multiply-add, few enough for 32 registers."""


def peak_ir(lanes: int, chains: int = CHAINS) -> str:
    """LLVM IR of `void peak(ptr operands, i64 steps)`, float32: `chains` multiply-adds per step."""
    vector = f"<{lanes} x float>"
    lines = [
        "define void @peak(ptr %p, i64 %steps) {",
        "entry:",
        f"  %a = load {vector}, ptr %p, align 4",
        f"  %q = getelementptr {vector}, ptr %p, i64 1",
        f"  %b = load {vector}, ptr %q, align 4",
        "  br label %loop",
        "loop:",
        "  %n = phi i64 [ 0, %entry ], [ %next, %loop ]",
    ]
    lines += [f"  %s{c} = phi {vector} [ %a, %entry ], [ %t{c}, %loop ]" for c in range(chains)]
    lines += [
        f"  %t{c} = call {vector} @llvm.fma.v{lanes}f32({vector} %s{c}, {vector} %a, {vector} %b)"
        for c in range(chains)
    ]
    lines += [
        "  %next = add i64 %n, 1",
        "  %more = icmp ult i64 %next, %steps",
        "  br i1 %more, label %loop, label %exit",
    ]
    lines += ["exit:"]
    total = "%t0"
    for c in range(1, chains):
        lines.append(f"  %u{c} = fadd {vector} {total}, %t{c}")
        total = f"%u{c}"
    lines += [
        f"  store {vector} {total}, ptr %p, align 4",
        "  ret void",
        "}",
        f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
    ]
    return "\n".join(lines) + "\n"


def fma_peak(threads: int, steps: int = 1_000_000) -> tuple[Callable[[], None], float]:
    """A call that keeps `threads` cores busy with multiply-adds, and its float operations [flop]."""
    machine = Machine.host()
    lanes = machine.vector_bits // 32
    code = load_object(compile_ir(peak_ir(lanes), machine), ["peak"])
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code["peak"])
    operands = [(ctypes.c_float * (2 * lanes))(*([0.5] * (2 * lanes))) for _ in range(threads)]
    pool = ThreadPoolExecutor(threads)

    def run() -> None:
        list(pool.map(lambda block: function(ctypes.addressof(block), steps), operands))

    run.code = code  # type: ignore[attr-defined]  # the code lives as long as the call
    return run, 2.0 * CHAINS * lanes * steps * threads
