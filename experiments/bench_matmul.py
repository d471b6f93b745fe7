"""A matrix product scheduled by hand, beside the machine's multiply-add peak and numpy.

Claim: the general path (te, schedule, lowering, LLVM) reaches 80 % of the measured peak; nothing in it knows
what a matrix product is. The schedule tiles for registers (6 x 4 vectors), blocks rows for the second-level
cache, and runs row blocks in parallel; 6 does not divide the extents, so guards are part of the test.

Command: `python -m experiments.bench_matmul [--quick] [--json PATH]`; half a minute, 10 s with `--quick`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from experiments import command
from experiments.fma_peak import FmaPeak, peak_flop
from experiments.harness import Bench, Estimate, fresh_process, speedup
from experiments.turns import Timer, take_turns, timer_of

GOAL = 0.8


def schedule(n: int, rows: int = 6, vectors: int = 4, block: int = 16) -> tuple[Any, list[te.Tensor]]:
    """Schedule C[n, n] = A[n, n] @ B[n, n] for this machine's vectors."""
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    lanes = Machine.host().vector_bits // 32
    i_block, i_tile, i_row = s[C].split(C.op.axis[0], factors=[block, rows])
    j_tile, j_vector, j_lane = s[C].split(C.op.axis[1], factors=[vectors, lanes])
    s[C].reorder(i_block, j_tile, i_tile, k, i_row, j_vector, j_lane)
    s[C].parallel(i_block)
    s[C].vectorize(j_lane)
    return s, [A, B, C]


def compare(n: int, repeats: int) -> dict[str, list[float]]:
    """Time the kernel, numpy and the multiply-add loop in turn, on all threads; flop/s by name."""
    kernel = ansor.build(*schedule(n), target="llvm", name="matmul")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    out = np.empty((n, n), np.float32)
    kernel(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-3, atol=1e-3)
    timers: dict[str, Timer] = {
        "ansor": timer_of(lambda: kernel(a, b, out)),
        "numpy": timer_of(lambda: np.matmul(a, b, out=out)),
        "peak": FmaPeak(),
    }
    seconds = take_turns(timers, repeats)
    work = {"ansor": 2.0 * n**3, "numpy": 2.0 * n**3, "peak": peak_flop()}
    return {name: [work[name] / t for t in times] for name, times in seconds.items()}


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_matmul: a hand-scheduled product beside the multiply-add peak", argv)
    for n in (1024,) if bench.quick else (512, 1024, 2048):
        rates: dict[str, list[float]] = {"ansor": [], "numpy": [], "peak": []}
        for _ in range(1 if bench.quick else 3):
            for name, values in fresh_process("experiments.bench_matmul:compare", n, 11).items():
                rates[name] += values
        share = Estimate.of([x / y for x, y in zip(rates["ansor"], rates["peak"], strict=True)])
        bench.add(f"matmul {n}: speed", Estimate.of([x / 1e9 for x in rates["ansor"]]), "GFLOP/s")
        bench.add(f"matmul {n}: share of the peak", share, "of 1", peer="multiply-add loop", at_least=GOAL)
        times = {name: [1 / x for x in values] for name, values in rates.items()}
        bench.add(f"matmul {n}: speed over numpy", speedup(times["ansor"], times["numpy"]), "x", peer="numpy")
    return bench.finish()


if __name__ == "__main__":
    command.run(main)
