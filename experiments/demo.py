"""The demonstration behind `make demo`: from an expression to a checked, tuned kernel, in front of your eyes.

Tunes a 1024 x 1024 x 1024 matrix product with addition, checks the result, and prints its speed beside
numpy's on the same machine in the same run, the loop nest, the schedule as Python code, and where the log
is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from statistics import median

import numpy as np

import ansor
from ansor import te
from experiments import command
from experiments.harness import OUT, machine, positive_number, speedup
from experiments.search.runs import whole
from experiments.turns import interleave


@ansor.register_workload
def matmul_add(n: int, l: int, m: int, dtype: str) -> list[te.Tensor]:  # noqa: E741
    """Define out = A @ B + C, with A of shape (n, l) and B of shape (l, m)."""
    a = te.placeholder((n, l), name="A", dtype=dtype)
    b = te.placeholder((l, m), name="B", dtype=dtype)
    c = te.placeholder((n, m), name="C", dtype=dtype)
    k = te.reduce_axis((0, l), name="k")
    product = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")
    out = te.compute((n, m), lambda i, j: product[i, j] + c[i, j], name="out")
    return [a, b, c, out]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=positive_number, default=1024, help="rows and columns of all matrices")
    parser.add_argument("--trials", type=positive_number, default=64, help="programs to measure")
    arguments = parser.parse_args(argv)
    n = arguments.size
    started = time.monotonic()

    task = ansor.SearchTask(matmul_add, (n, n, n, "float32"), target="llvm")
    heading(f"What to compute ({machine()})")
    print(task.compute_dag)

    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / f"demo-{n}.log.json"
    heading(f"Tuning: {arguments.trials} programs are built, run and checked in worker processes")
    options = ansor.TuningOptions(
        num_measure_trials=arguments.trials, measure_callbacks=[ansor.RecordToFile(log)]
    )
    result = whole(task.tune(options))
    if result.best_state is None:
        print(result)
        return 1

    schedule, tensors = task.apply_best(log)
    kernel = ansor.build(schedule, tensors, target="llvm", name="matmul_add")
    heading("The best loop nest")
    print(kernel.get_source("nest"))
    heading("Its schedule as Python code")
    print(task.print_best(log))

    rng = np.random.default_rng(0)
    a, b, c, out = (ansor.aligned_empty((n, n), "float32") for _ in range(4))
    for array in (a, b, c):
        array[...] = rng.uniform(-1, 1, (n, n))
    kernel(a, b, c, out)
    np.testing.assert_allclose(out, a @ b + c, rtol=1e-3, atol=1e-3)

    times = interleave({"ansor": lambda: kernel(a, b, c, out), "numpy": lambda: a @ b + c})
    ratio = speedup(times["ansor"], times["numpy"])
    gflop = task.compute_dag.flop_count / 1e9
    seconds = time.monotonic() - started
    heading("What came out")
    print(f"checked  : equal to numpy within 1e-3 on {n} x {n} random numbers")
    for name, measured in times.items():
        print(f"{name:9}: {gflop / median(measured):7.1f} GFLOP/s  ({median(measured) * 1e3:.2f} ms)")
    print(
        f"ratio    : {ratio.median:.2f} of numpy's speed ({ratio.low:.2f} .. {ratio.high:.2f}, timed in turn)"
    )
    print(f"trials   : {result.trials} new, {result.known_trials} in the log; {seconds:.0f} s in all")
    print(f"log      : {log}")
    print(f"go on    : make demo again adds {arguments.trials} trials; ansor best {log} shows what it holds")
    return 0


def heading(text: str) -> None:
    print(f"\n--- {text}\n", flush=True)


if __name__ == "__main__":
    command.run(main)
