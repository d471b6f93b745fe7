"""A matrix product scheduled by hand, beside the machine's multiply-add peak and numpy.

Claim: the general path (te, schedule, lowering, LLVM) reaches 80 % of the measured peak; nothing in it knows
what a matrix product is. The schedule packs B into panels as wide as a register tile (6 x 4 vectors, or 6 x 2
of 16 registers), blocks rows for the second-level cache, and runs row blocks in parallel; 6 does not divide
the extents, so guards are part of the test.

Beside it runs one such tile again and again, on packed operands in the caches of a core, which tells what
loading them costs, whatever a schedule does about caches (`experiments.register_tiles`).

Command: `python -m experiments.bench_matmul [--quick] [--json PATH]`; two minutes, 10 s with `--quick`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import ansor
from ansor import te
from experiments import command
from experiments.fma_peak import FmaPeak, peak_flop
from experiments.harness import Bench, Estimate, fresh_process, speedup
from experiments.register_tiles import ROWS, UNROLLED, RegisterTiles, register_tile, tiles_flop
from experiments.turns import Timer, take_turns, timer_of

GOAL = 0.8


def schedule(n: int, block: int = 8) -> tuple[Any, list[te.Tensor]]:
    """Schedule C[n, n] = A[n, n] @ B[n, n] for this machine's vectors."""
    A = te.placeholder((n, n), name="A")
    B = te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    vectors, lanes = register_tile()
    panels = s.rewrite_layout(B, [(1, None), 0, (1, vectors * lanes)], readers=C)
    s[panels].parallel(s[panels].op.axis[0])
    i, j = s[C].op.axis
    (k,) = s[C].op.reduce_axis
    i_block, i_tile, i_row = s[C].split(i, factors=[block, ROWS])
    j_tile, j_vector, j_lane = s[C].split(j, factors=[vectors, lanes])
    k_outer, k_inner = s[C].split(k, factor=UNROLLED)
    s[C].reorder(i_block, j_tile, i_tile, k_outer, k_inner, i_row, j_vector, j_lane)
    s[C].parallel(i_block)
    s[C].unroll(k_inner)
    s[C].vectorize(j_lane)
    return s, [A, B, C]


def compare(n: int, repeats: int) -> dict[str, list[float]]:
    """Time the kernel, numpy, the tile and the multiply-add loop in turn, on all threads; flop/s by name."""
    kernel = ansor.build(*schedule(n), target="llvm", name="matmul")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    out = np.empty((n, n), np.float32)
    kernel(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-3, atol=1e-3)
    timers: dict[str, Timer] = {
        "ansor": timer_of(lambda: kernel(a, b, out)),
        "numpy": timer_of(lambda: np.matmul(a, b, out=out)),
        "tile": RegisterTiles(),
        "peak": FmaPeak(),
    }
    seconds = take_turns(timers, repeats)
    product = 2.0 * n**3
    work = {"ansor": product, "numpy": product, "tile": tiles_flop(), "peak": peak_flop()}
    return {name: [work[name] / t for t in times] for name, times in seconds.items()}


def share(rates: list[float], whole: list[float]) -> Estimate:
    """Estimate one rate over another that was taken in turn with it."""
    return Estimate.of([x / y for x, y in zip(rates, whole, strict=True)])


def one_size(bench: Bench, n: int, processes: int) -> None:
    """Add the rows of one size."""
    rates: dict[str, list[float]] = {"ansor": [], "numpy": [], "tile": [], "peak": []}
    for _ in range(processes):
        for name, values in fresh_process("experiments.bench_matmul:compare", n, 11).items():
            rates[name] += values
    ours, tiles, peaks = rates["ansor"], rates["tile"], rates["peak"]
    bench.add(f"matmul {n}: speed", Estimate.of([x / 1e9 for x in ours]), "GFLOP/s")
    peak = "multiply-add loop"
    bench.add(f"matmul {n}: share of the peak", share(ours, peaks), "of 1", peer=peak, at_least=GOAL)
    bench.add(f"tile beside matmul {n}: share of the peak", share(tiles, peaks), "of 1", peer=peak)
    bench.add(f"matmul {n}: share of the tile's speed", share(ours, tiles), "of 1", peer="tile")
    times = {name: [1 / x for x in values] for name, values in rates.items()}
    bench.add(f"matmul {n}: speed over numpy", speedup(times["ansor"], times["numpy"]), "x", peer="numpy")


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_matmul: a hand-scheduled product beside the multiply-add peak", argv)
    for n in (1024,) if bench.quick else (512, 1024, 2048):
        with bench.case(f"matmul {n}"):
            one_size(bench, n, 1 if bench.quick else 3)
    return bench.finish()


if __name__ == "__main__":
    command.run(main, unread=1)
