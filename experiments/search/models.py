"""Part `models`: how well each cost model orders programs that it has not seen, in one table.

Splits and models are those of `bench_costmodel`, which compares more; here every model has the same few
figures, and one that knows nothing shows what chance gives. The records are made as there, by this version.
"""

from __future__ import annotations

from typing import Final

import numpy as np

import ansor
from experiments.bench_costmodel import HELD_OUT, LEARNERS, SLOW, TASKS, Quality, judge, records, report
from experiments.harness import Bench
from experiments.search.runs import folder

PER_TASK: Final = 384


def models(bench: Bench, seeds: int) -> None:
    """Add the rows of each model."""
    chosen, count = (TASKS[:1], 24) if bench.quick else (TASKS, PER_TASK)
    data, tasks = records(chosen, count, folder())
    splits = [data.split_by_program(HELD_OUT, seed) for seed in range(seeds)]
    bench.add("records of all tasks, 30 % held out", len(data), "")
    report(bench, "RandomModel", [chance(test, seed) for seed, (_, test) in enumerate(splits)])
    for name, learner in LEARNERS.items():
        if not (bench.quick and name in SLOW):
            report(bench, name, [judge(learner(0), train, test, tasks) for train, test in splits])


def chance(test: ansor.Dataset, seed: int) -> Quality:
    """What scores without meaning achieve."""
    scores = np.random.default_rng(seed).random(len(test))
    return Quality(
        ansor.metrics.order_accuracy(scores, test.costs, test.tasks),
        ansor.metrics.top_recall(scores, test.costs, test.tasks),
        ansor.metrics.best_of_top(scores, test.costs, test.tasks, [10])[0],
    )
