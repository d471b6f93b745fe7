"""What packing a tile is worth in a matrix product whose rows lie a power of two apart.

Claim: with rows of 1024 floats and a register tile of 14 rows, the rows of A fall into so few sets of the
first-level cache that they evict each other; copying each tile of A into contiguous scratch first
(`Schedule.rewrite_layout` on a copy, computed inside the outer reduction loop) makes the product faster by
more than the copies cost. B is read along its rows and gains little. The tile is as large as the registers of
AVX-512 allow; elsewhere fewer rows are taken.

Command: `python -m experiments.bench_packing [--quick] [--json PATH]`; half a minute, 10 s with `--quick`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import ansor
from ansor import te
from ansor.codegen.machine import Machine
from experiments import command
from experiments.harness import Bench, Estimate, fresh_process, speedup
from experiments.turns import interleave

VARIANTS = {"unpacked": "", "packed A": "A", "packed B": "B", "packed A and B": "AB"}


def schedule(n: int, packed: str, block: int = 8, depth: int = 256) -> tuple[Any, list[te.Tensor]]:
    """Schedule C[n, n] = A[n, n] @ B[n, n]; the operands named in `packed` go through scratch."""
    lanes = Machine.host().vector_bits // 32
    rows, columns = (14 if lanes == 16 else 6), 2 * lanes
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C)
    copies = []
    if "A" in packed:
        copies.append(s.rewrite_layout(A, [(0, None), 1, (0, rows)], readers=C))
    if "B" in packed:
        copies.append(s.rewrite_layout(B, [(1, None), 0, (1, columns)], readers=C))
    i_block, i_tile, i_row = s[C].split(s[C].op.axis[0], factors=[block, rows])
    j_block, j_tile, j_lane = s[C].split(s[C].op.axis[1], factors=[16, columns])
    k_block, k_inner = s[C].split(s[C].op.reduce_axis[0], factor=depth)
    s[C].reorder(i_block, j_block, k_block, i_tile, j_tile, k_inner, i_row, j_lane)
    s[C].vectorize(j_lane)
    for copy in copies:
        s[copy].compute_at(s[C], k_block)
    s[C].parallel(s[C].fuse(i_block, j_block))
    return s, [A, B, C]


def compare(n: int, repeats: int) -> dict[str, list[float]]:
    """Time all variants in turn, on one thread [s]."""
    ansor.set_num_threads(1)
    kernels = {name: ansor.build(*schedule(n, packed)) for name, packed in VARIANTS.items()}
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    out = np.empty((n, n), np.float32)
    for kernel in kernels.values():
        kernel(a, b, out)
        np.testing.assert_allclose(out, a @ b, rtol=1e-3, atol=1e-3)
    calls = {name: lambda kernel=kernel: kernel(a, b, out) for name, kernel in kernels.items()}
    return interleave(calls, repeats=repeats)


def one_size(bench: Bench, n: int, processes: int) -> None:
    """Add the rows of one size."""
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(processes):
        for name, values in fresh_process("experiments.bench_packing:compare", n, 9).items():
            times[name] += values
    for name, seconds in times.items():
        bench.add(f"matmul {n} {name}", Estimate.of([2e-9 * n**3 / t for t in seconds]), "GFLOP/s")
    for name in list(times)[1:]:
        over = speedup(times[name], times["unpacked"])
        bench.add(f"matmul {n} {name}: speed", over, "x", peer="unpacked")


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_packing: tiles copied into contiguous scratch, one thread", argv)
    for n in (1024,) if bench.quick else (1000, 1024, 2048):
        with bench.case(f"matmul {n}"):
            one_size(bench, n, 1 if bench.quick else 3)
    return bench.finish()


if __name__ == "__main__":
    command.run(main, unread=1)
