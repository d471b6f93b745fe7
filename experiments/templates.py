"""One matrix product, written as a template: its tuners beside the search that needs no template.

    python -m experiments.templates --trials 32

All work on the same task with the same number of trials and the same seed. What each found is measured again,
in turns, so that a lucky measurement does not win.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

import ansor
from ansor import te
from experiments import command
from experiments.harness import positive_number
from experiments.search.runs import whole


@ansor.template("experiments.tiled_matmul")
def tiled_matmul(cfg: ansor.Config, n: int, m: int, l: int) -> tuple[ansor.Schedule, list[te.Tensor]]:  # noqa: E741
    """Define C = A @ B in tiles, rows on threads."""
    A, B = te.placeholder((n, l), name="A"), te.placeholder((l, m), name="B")
    k = te.reduce_axis((0, l), name="k")
    C = te.compute((n, m), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C)
    i, j = C.op.axis
    cfg.define_split("tile_i", i, num_outputs=3, filter=lambda e: e.size[2] <= 16)
    cfg.define_split("tile_j", j, num_outputs=3, filter=lambda e: e.size[2] <= 64)
    cfg.define_split("tile_k", k)
    cfg.define_annotate("inner", [i, j], "try_unroll_vec")
    io, im, ii = cfg["tile_i"].apply(s, C, i)
    jo, jm, ji = cfg["tile_j"].apply(s, C, j)
    ko, ki = cfg["tile_k"].apply(s, C, k)
    s[C].reorder(io, jo, ko, im, jm, ki, ii, ji)
    cfg["inner"].apply(s, C, [ii, ji])
    s[C].parallel(io)
    return s, [A, B, C]


TUNERS: Mapping[str, Callable[[ansor.TemplateTask, int], ansor.SearchPolicy]] = {
    "grid": lambda task, seed: ansor.GridSearchTuner(task, seed),
    "random": lambda task, seed: ansor.RandomTuner(task, seed),
    "ga": lambda task, seed: ansor.GATuner(task, seed, pop_size=16),
    "xgb": lambda task, seed: ansor.XGBTuner(task, seed, plan_size=16),
    "sketches": lambda task, seed: ansor.SketchPolicy(task, seed=seed),
}


def compare(size: int, trials: int, seed: int = 0, min_repeat_ms: int = 50) -> dict[str, float]:
    """Speed [GFLOP/s] of the best program that each tuner found, the median of interleaved measurements."""
    task = ansor.TemplateTask(tiled_matmul, (size, size, size))
    kernels: dict[str, ansor.Module] = {}
    with TemporaryDirectory() as folder, ansor.LocalRunner(min_repeat_ms=min_repeat_ms) as runner:
        for name, make in TUNERS.items():
            log = Path(folder) / f"{name}.json"
            options = ansor.TuningOptions(
                num_measure_trials=trials,
                num_measures_per_round=16,
                runner=runner,
                measure_callbacks=[ansor.RecordToFile(log)],
            )
            whole(task.tune(options, make(task, seed)))
            kernels[name] = ansor.build(*task.apply_best(log))
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, (size, size)).astype(np.float32) for _ in range(3)]
    timers = {name: kernel.time_evaluator(min_repeat_ms=min_repeat_ms) for name, kernel in kernels.items()}
    seconds: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(5):
        for name, timer in timers.items():
            seconds[name].append(timer(*arrays).mean)
    return {name: task.compute_dag.flop_count / median(times) / 1e9 for name, times in seconds.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description="Tuners of a template beside the search without one.")
    parser.add_argument("--size", type=positive_number, default=512)
    parser.add_argument("--trials", type=positive_number, default=64)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    print(ansor.TemplateTask(tiled_matmul, (chosen.size,) * 3).config_space)
    for name, speed in compare(chosen.size, chosen.trials, chosen.seed).items():
        print(f"{name:10} {speed:7.1f} GFLOP/s after {chosen.trials} trials")
    return 0


if __name__ == "__main__":
    command.run(main)
