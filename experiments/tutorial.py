"""The auto-scheduler tutorial: a matrix product with addition, tuned from a plain description.

    python -m experiments.tutorial --trials 64

The steps of the tutorial that many users know, with `import ansor as auto_scheduler`: describe, make a task,
tune, apply the best, look at it, build, check, time, print the schedule, and resume a search, the short way
and with a cost model and preloaded measurements.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import ansor as auto_scheduler
from ansor import te
from experiments import command
from experiments.harness import OUT, positive_number


@auto_scheduler.register_workload  # The function's name and arguments are the workload's key.
def tutorial_matmul_add(N: int, L: int, M: int, dtype: str) -> list[te.Tensor]:
    """Define out = A @ B + C."""
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)

    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},  # B may be laid out anew where an option allows it.
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return [A, B, C, out]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tutorial found: seconds per call, the schedule's code, and how many trials each part made."""

    median_seconds: float
    lowered: str
    code: str
    trials: int
    resumed_trials: int
    records: int


def tutorial(
    shape: tuple[int, int, int] = (1024, 1024, 1024),
    trials: int = 10,
    resumed_trials: int = 5,
    log_file: Path | str = OUT / "tutorial.json",
    min_repeat_ms: int = 500,
    verbose: int = 1,
) -> Outcome:
    """Run the tutorial.

    Raises
    ------
    AssertionError
        If the tuned program does not compute what numpy does, to a relative 1e-3.
    """
    log_file = Path(log_file)
    log_file.parent.mkdir(parents=True, exist_ok=True)

    # The task: what to compute, and for which machine.
    target = auto_scheduler.Target("llvm")
    N, L, M = shape
    task = auto_scheduler.SearchTask(func=tutorial_matmul_add, args=(N, L, M, "float32"), target=target)
    print("Computational DAG:")
    print(task.compute_dag)

    # The search: every measured program goes to the log.
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=trials,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
        verbose=verbose,
    )
    result = task.tune(tune_option)
    sch, args = task.apply_best(log_file)

    # The best program as loops, without the passes that polish them.
    lowered = str(auto_scheduler.lower(sch, args, simple_mode=True))
    print("Lowered program:")
    print(lowered)

    # Does it compute the right thing, and how fast?
    func = auto_scheduler.build(sch, args, target, name="matmul_add")
    rng = np.random.default_rng(0)
    a_np = rng.uniform(size=(N, L)).astype(np.float32)
    b_np = rng.uniform(size=(L, M)).astype(np.float32)
    c_np = rng.uniform(size=(N, M)).astype(np.float32)
    out_np = a_np.dot(b_np) + c_np
    out = np.empty_like(out_np)
    func(a_np, b_np, c_np, out)
    np.testing.assert_allclose(out_np, out, rtol=1e-3)

    evaluator = func.time_evaluator(func.entry_name, min_repeat_ms=min_repeat_ms)
    seconds = float(np.median(evaluator(a_np, b_np, c_np, out).results))
    print(f"Execution time of this operator: {seconds * 1e3:.3f} ms")

    # The schedule as code to keep, or to learn from.
    code = task.print_best(log_file)
    print("Equivalent Python schedule:")
    print(code)

    resumed = resume_search(task, log_file, resumed_trials, verbose)
    records = sum(1 for _ in auto_scheduler.RecordReader(log_file))
    return Outcome(seconds, lowered, code, result.trials, resumed, records)


def resume_search(
    task: auto_scheduler.SearchTask, log_file: Path | str, trials: int = 5, verbose: int = 1
) -> int:
    """Go on from what a log knows: the model learns from it and nothing in it is measured again."""
    print("Resume search:")
    cost_model = auto_scheduler.XGBModel()
    cost_model.update_from_file(log_file)
    search_policy = auto_scheduler.SketchPolicy(
        task, cost_model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log_file)]
    )
    tune_option = auto_scheduler.TuningOptions(
        num_measure_trials=trials,
        measure_callbacks=[auto_scheduler.RecordToFile(log_file)],
        verbose=verbose,
    )
    return task.tune(tune_option, search_policy=search_policy).trials


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=positive_number, default=1024, help="rows and columns of all matrices")
    parser.add_argument("--trials", type=positive_number, default=10, help="programs to measure")
    parser.add_argument("--log", type=Path, default=OUT / "tutorial.json", help="the tuning log")
    arguments = parser.parse_args(argv)
    n = arguments.size
    outcome = tutorial((n, n, n), arguments.trials, log_file=arguments.log)
    print(f"{outcome.trials} + {outcome.resumed_trials} trials; the log holds {outcome.records} records")
    return 0


if __name__ == "__main__":
    command.run(main)
