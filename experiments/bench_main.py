"""What a trial costs, and what tuning is worth: the first benchmark.

Claims to look at: milliseconds per trial, split into thinking, building, running and checking; and the speed
of every catalogue workload after a few random trials beside the numpy program a user would write, on the same
machine in the same run.

Command: `python -m experiments.bench_main [--quick] [--json PATH]`; about 1 minute with `--quick`, 10
without. Logs stay in `experiments/out`, so a second run goes on tuning where the first one stopped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

import numpy as np

import ansor
from ansor import workloads
from experiments import command
from experiments.cpu.measure import check
from experiments.harness import OUT, Bench, Estimate, fresh_process, speedup
from experiments.search.runs import whole
from experiments.turns import interleave

QUICK: Final = ("matmul", "conv2d_bn_relu", "softmax")
TRIAL_TASKS: Final[tuple[tuple[str, tuple[int, ...]], ...]] = (
    ("matmul_add", (1024, 1024, 1024)),
    ("conv2d", (1, 14, 14, 256, 256, 3, 1, 1)),
)
TVM_MS_PER_TRIAL: Final = 603_000 / 200
"""TVM 0.16's auto_scheduler on a 2-core Zen 4 machine: 603 s for 200 trials of matmul_add 1024."""


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_main: cost of a trial, and the catalogue beside numpy", argv)
    OUT.mkdir(parents=True, exist_ok=True)
    for name, args in TRIAL_TASKS[: 1 if bench.quick else None]:
        with bench.case(f"{name}: cost of a trial"):
            cost_of_a_trial(bench, name, args, count=8 if bench.quick else 64)
    for name in bench.each(QUICK if bench.quick else tuple(workloads.CATALOGUE)):
        with bench.case(name):
            beside_numpy(bench, name, trials=16 if bench.quick else 64, processes=1 if bench.quick else 3)
    return bench.finish()


def cost_of_a_trial(bench: Bench, name: str, args: Sequence[int], count: int) -> None:
    """Measure one round in pieces: proposing, building, and running with and without timed repeats."""
    entry = workloads.get_workload(name)
    task = ansor.SearchTask(func=entry.registered_name, args=args)
    title = f"{name} {' '.join(map(str, args))}"
    start = time.perf_counter()
    states = ansor.SketchPolicy(task).propose(0, count, ansor.History()).states
    thinking = 1e3 * (time.perf_counter() - start) / len(states)
    inputs = [ansor.MeasureInput(task, state) for state in states]
    with (
        ansor.LocalBuilder() as builder,
        ansor.LocalRunner() as runner,
        ansor.LocalRunner(number=1, repeat=1, min_repeat_ms=0) as checker,
    ):
        first = builder.build(inputs[:1])
        for each in (runner, checker):  # Starts the workers and computes the right answer, once per task.
            each.run(inputs[:1], first)
        start = time.perf_counter()
        builds = builder.build(inputs)
        building = 1e3 * (time.perf_counter() - start) / len(states)
        runs = run_each(runner, inputs, builds)
        short = run_each(checker, inputs, builds)
    # A short run loads, checks twice, and calls the program twice; of slow programs the calls drown the rest.
    quick = sorted((r.mean_cost, wall - 2e3 * r.mean_cost) for wall, r in short if r.ok)
    checking = median(rest for _, rest in quick[: max(1, len(quick) // 2)])
    bench.add(f"{title}: think", thinking, "ms/trial")
    bench.add(f"{title}: build", building, "ms/trial")
    bench.add(f"{title}: build, on one core", 1e3 * median(b.time_cost for b in builds), "ms")
    bench.add(f"{title}: run and time", median(wall for wall, _ in runs) - checking, "ms/trial, median")
    bench.add(f"{title}: load and check", checking, "ms/trial, median")
    total = thinking + building + sum(wall for wall, _ in runs) / len(runs)
    peer = f"TVM 0.16 {TVM_MS_PER_TRIAL:.0f} ms" if name == "matmul_add" else None
    bench.add(f"{title}: whole trial", total, "ms/trial, mean", peer=peer)
    failed = sum(not result.ok for _, result in runs)
    bench.add(f"{title}: failed trials", failed / len(runs), "of 1")


def run_each(
    runner: ansor.LocalRunner, inputs: Sequence[ansor.MeasureInput], builds: Sequence[Any]
) -> list[tuple[float, ansor.MeasureResult]]:
    """Run programs and return the wall time [ms] and the result of each."""
    found = []
    start = time.perf_counter()
    for result in runner.run_each(inputs, builds):
        found.append((1e3 * (time.perf_counter() - start), result))
        start = time.perf_counter()
    return found


def beside_numpy(bench: Bench, name: str, trials: int, processes: int) -> None:
    """Tune one workload at its benchmark size and compare its best program with numpy in fresh processes."""
    entry = workloads.get_workload(name)
    args = entry.default_args
    title = f"{name} {' '.join(map(str, args))}"
    log = str(OUT / f"bench-{name}.log.json")
    task = ansor.SearchTask(func=entry.registered_name, args=args)
    options = ansor.TuningOptions(
        num_measure_trials=trials, verbose=0, measure_callbacks=[ansor.RecordToFile(log)]
    )
    result = whole(task.tune(options))
    if result.best_cost is None:
        raise RuntimeError(f"no program: {result.message}")
    pairs = [fresh_process("experiments.bench_main:compare", name, list(args), log) for _ in range(processes)]
    ours = [seconds for pair in pairs for seconds in pair["ansor"]]
    peers = [seconds for pair in pairs for seconds in pair["numpy"]]
    flops = task.compute_dag.flop_count
    if flops > 0:
        bench.add(f"{title}: speed", Estimate.of([flops / t / 1e9 for t in ours]), "GFLOP/s")
    peer = f"numpy {1e3 * median(peers):.3g} ms"
    bench.add(f"{title}: speed over numpy", speedup(ours, peers), "x", peer=peer)


def compare(name: str, args: Sequence[Any], log: str) -> dict[str, list[float]]:
    """Time the best program of a log and numpy in turn; seconds per call of each round, by name."""
    entry = workloads.get_workload(name)
    task = ansor.SearchTask(func=entry.registered_name, args=args)
    kernel = ansor.build(*task.apply_best(log), target=task.target)
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.5, 1.5, shape).astype(dtype) for _, shape, dtype in entry.input_shapes(args)]
    named = entry.bind(args)
    expected = entry.reference(inputs, named)
    out = np.empty_like(kernel(*inputs))
    kernel(*inputs, out)
    check("numpy", out, expected, tolerance=1e-3)
    return interleave(
        {"ansor": lambda: kernel(*inputs, out), "numpy": lambda: entry.reference(inputs, named)}
    )


if __name__ == "__main__":
    command.run(main, unread=1)
