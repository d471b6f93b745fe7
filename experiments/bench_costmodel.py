"""How well cost models order programs that they have not seen, and what they cost.

Claims to look at: for each model, on held-out records, how often it puts two programs of a task in the right
order, how many of the fastest tenth it finds, and how fast the best of its first ten is; the same with few
records of one task, as in the first rounds of a search, and on a task that it has no records of; the time to
train on 2000 records and to score 2048 programs.

The records are made here, by tuning at random: logs of some catalogue workloads in the folder of this
version (`experiments.search.runs`), which later runs complete. Every model sees the same records and the same
features.

Command: `python -m experiments.bench_costmodel [--quick] [--json PATH]`; a minute with `--quick`, ten
without, most of it for the records of the first run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Union

import numpy as np

import ansor
from ansor import workloads
from experiments import command
from experiments.harness import Bench, Estimate
from experiments.search.runs import folder, trials_in, whole

TASKS: Final[tuple[tuple[str, tuple[int, ...]], ...]] = (
    ("matmul", (512, 512, 512)),
    ("softmax", (512, 512)),
    ("conv2d", (1, 14, 14, 256, 256, 3, 1, 1)),
    ("batch_matmul", (12, 128, 128, 64)),
    ("depthwise_conv2d", (1, 112, 112, 32, 3, 1, 1)),
    ("conv2d_bn_relu", (1, 56, 56, 64, 64, 3, 1, 1)),
)
HELD_OUT: Final = 0.3
FEW: Final = (16, 64)
PROGRAMS: Final = 2048
RECORDS: Final = 2000
ROWS: Final = 6

Model = Union[ansor.LearnedModel, ansor.DraftedModel, None]
Learner = Callable[[int], Model]
Split = tuple[ansor.Dataset, ansor.Dataset]
Tasks = Mapping[tuple[str, str, int], ansor.Task]

LEARNERS: Final[Mapping[str, Learner]] = {
    "DraftedModel (analytic + XGB)": lambda seed: ansor.DraftedModel(learned=ansor.XGBModel(seed=seed)),
    "XGBModel": lambda seed: ansor.XGBModel(seed=seed),
    "XGBModel, squared loss": lambda seed: ansor.XGBModel(seed=seed, loss="squared"),
    "HistGradientBoosting": lambda seed: ansor.SklearnModel("hist_gradient_boosting", seed=seed),
    "RandomForest": lambda seed: ansor.SklearnModel("random_forest", seed=seed),
    "Ridge": lambda seed: ansor.SklearnModel("ridge", seed=seed),
    "MLP": lambda seed: ansor.SklearnModel("mlp", seed=seed),
    "AnalyticModel": lambda seed: None,
}
SLOW: Final = ("HistGradientBoosting", "MLP")
"""Left out of a quick run."""
WITH_FEW: Final = ("DraftedModel (analytic + XGB)", "XGBModel", "XGBModel, squared loss", "Ridge")
WITH_NONE: Final = ("DraftedModel (analytic + XGB)", "XGBModel", "RandomForest")


@dataclass(frozen=True, slots=True)
class Quality:
    """What one model achieves on one held-out set."""

    order: float
    recall: float
    best_of_10: float


def main(argv: Sequence[str] | None = None) -> int:
    bench = Bench("bench_costmodel: how well models order programs that they have not seen", argv)
    chosen, count = (TASKS[:2], 64) if bench.quick else (TASKS, 384)
    data, tasks = records(chosen, count, folder())
    seeds = range(2 if bench.quick else 5)
    print(f"  {len(data)} records of {len(tasks)} tasks, {int(data.failed.sum())} failed", flush=True)
    for name, learner in LEARNERS.items():
        if bench.quick and name in SLOW:
            continue
        splits = [data.split_by_program(HELD_OUT, seed) for seed in seeds]
        report(bench, name, [judge(learner(0), *split, tasks) for split in splits])
    for count in FEW:
        for name in WITH_FEW:
            few = [few_of(data, number, count, seed) for number in range(len(tasks)) for seed in seeds]
            report(
                bench,
                f"{name}, {count} of one task",
                [judge(LEARNERS[name](0), *each, tasks) for each in few],
            )
    for name in WITH_NONE:
        unseen = [data.split_by_task([key]) for key in data.task_keys]
        report(bench, f"{name}, unseen task", [judge(LEARNERS[name](0), *each, tasks) for each in unseen])
    costs(bench, data, next(iter(tasks.values())))
    return bench.finish()


def records(
    chosen: Iterable[tuple[str, Sequence[int]]], count: int, where: Path
) -> tuple[ansor.Dataset, Tasks]:
    """Complete the logs of some workloads, in a folder, to `count` random programs each, and read them."""
    drafted = ansor.DraftedModel()
    collector = ansor.Collector(drafted.learned.features, drafted.drafter)
    tasks: dict[tuple[str, str, int], ansor.Task] = {}
    for name, args in chosen:
        task = ansor.SearchTask(func=workloads.get_workload(name).registered_name, args=args)
        tasks[task.key] = task
        sizes = "x".join(map(str, args))
        log = where / f"costmodel-{name}-{sizes}.log.json"
        known = trials_in(log, task)
        options = ansor.TuningOptions(
            num_measure_trials=max(count - known, 0),
            verbose=0,
            runner=ansor.LocalRunner(min_repeat_ms=30),
            measure_callbacks=[ansor.RecordToFile(str(log))],
            early_stopping=None,
        )
        if known < count:
            whole(task.tune(options, ansor.SketchPolicy(task, ansor.RandomModel(known))))
        collector.define(task)
        collector.add_log(log)
    return collector.dataset, tasks


def few_of(data: ansor.Dataset, number: int, count: int, seed: int) -> Split:
    """Hold programs of one task out and learn from `count` others of it."""
    inside, outside = (
        part.take(np.flatnonzero(part.tasks == number)) for part in data.split_by_program(HELD_OUT, seed)
    )
    chosen = np.random.default_rng(seed).permutation(len(inside))[:count]
    return inside.take(chosen), outside


def judge(model: Model, train: ansor.Dataset, test: ansor.Dataset, tasks: Tasks) -> Quality:
    """Train on one part and compare the scores of the other part with its run times."""
    learned = model.learned if isinstance(model, ansor.DraftedModel) else model
    if learned is not None:
        learned.learn(train)
    scores = np.zeros(len(test))
    for number, key in enumerate(test.task_keys):
        at = np.flatnonzero(test.tasks == number)
        if len(at):
            scores[at] = score(model, tasks[key], test.take(at))
    return Quality(
        ansor.metrics.order_accuracy(scores, test.costs, test.tasks),
        ansor.metrics.top_recall(scores, test.costs, test.tasks),
        ansor.metrics.best_of_top(scores, test.costs, test.tasks, [10])[0],
    )


def score(model: Model, task: ansor.Task, data: ansor.Dataset) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Score programs of one task; without a model by their drafts."""
    if model is None:
        return data.drafts
    return (
        model.predict_rows(task, data.rows)
        if isinstance(model, ansor.DraftedModel)
        else model.predict_rows(data.rows)
    )


def report(bench: Bench, name: str, found: Sequence[Quality]) -> None:
    """Add one model's rows: means over the splits, with the range of the accuracy."""
    bench.add(f"{name}: pairs in the right order", Estimate.of([each.order for each in found]), "of 1")
    bench.add(f"{name}: fastest tenth found", fmean(each.recall for each in found), "of 1")
    bench.add(f"{name}: best of its top 10", fmean(each.best_of_10 for each in found), "of the best")


def costs(bench: Bench, data: ansor.Dataset, task: ansor.Task) -> None:
    """Time training and scoring at the sizes of a real search."""
    large = enlarged(data, RECORDS)
    programs = enlarged(data, PROGRAMS).rows
    for name in ("XGBModel",) if bench.quick else ("XGBModel", "HistGradientBoosting", "RandomForest"):
        training: list[float] = []
        scoring: list[float] = []
        for _ in range(3 if name == "XGBModel" else 1):
            model = LEARNERS[name](0)
            assert isinstance(model, ansor.LearnedModel)
            model.learn(large)
            training.append(timed(model.train))
            scoring += [1e3 * timed(partial(model.predict_rows, programs)) for _ in range(3)]
        goals = (1.0, 60.0) if name == "XGBModel" else (None, None)
        bench.add(f"{name}: train, {RECORDS} records x {ROWS} rows", min(training), "s", at_most=goals[0])
        bench.add(f"{name}: score {PROGRAMS} x {ROWS} rows", min(scoring), "ms", at_most=goals[1])
    drafted = ansor.DraftedModel()
    drafted.learned.learn(data)
    space = ansor.SketchPolicy(task).space
    sample = ansor.Programs(space.sample(PROGRAMS, np.random.default_rng(0)).populations)
    drafted.predict(task, sample)
    both = min(timed(lambda: drafted.predict(task, sample)) for _ in range(3))
    bench.add(f"DraftedModel: extract and score {PROGRAMS} programs of matmul", 1e3 * both, "ms")


def enlarged(data: ansor.Dataset, count: int) -> ansor.Dataset:
    """Make `count` programs of `ROWS` rows that resemble those of `data`, in rows and costs."""
    rng = np.random.default_rng(0)
    chosen = rng.integers(len(data), size=count)
    starts, counts = data.rows.offsets[chosen], data.rows.counts[chosen]
    rows = (starts[:, None] + np.arange(ROWS) % counts[:, None]).ravel()
    values = data.rows.values[rows]
    values += 0.02 * rng.standard_normal(values.shape, dtype=np.float32)
    packed = ansor.PackedRows(values, np.arange(count + 1, dtype=np.int64) * ROWS)
    digests = rng.integers(2**63, size=count, dtype=np.uint64)
    noisy = data.costs[chosen] * np.exp(0.05 * rng.standard_normal(count))
    return ansor.Dataset(packed, noisy, data.tasks[chosen], data.task_keys, digests, data.drafts[chosen])


def timed(call: Callable[[], object]) -> float:
    """Wall time of a call [s]."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    command.run(main, unread=1)
