"""What the analytic model picks first, among programs whose run times are recorded.

`data/measured_programs.json` is a log of random programs of five workloads, drawn and measured by
`experiments.bench_costmodel` on two cores of an AMD Zen 4 with AVX-512.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import ansor
from costmodel import FloatArray
from costmodel.analytic import AnalyticModel
from measure import load_records

RECORDS = Path(__file__).parent / "data" / "measured_programs.json"
TARGET = "llvm -mcpu=znver4 -num-cores=2"
ROUND = 16
WORKLOADS = ("matmul", "batch_matmul", "softmax", "conv2d", "depthwise_conv2d")


@cache
def recorded(workload: str) -> tuple[FloatArray, FloatArray]:
    """Scores and run times [s] of the recorded programs of a workload."""
    found: ansor.SearchTask | None = None
    states: list[ansor.State] = []
    seconds: list[float] = []
    for inp, result in load_records(str(RECORDS)):
        name, *args = json.loads(inp.task.workload_key)
        if name != f"ansor.{workload}":
            continue
        found = found or ansor.SearchTask(func=name, args=tuple(args), target=TARGET)
        states.append(inp.state.replay(found.compute_dag))  # type: ignore[union-attr]
        seconds.append(result.mean_cost)
    assert found is not None
    return AnalyticModel().predict(found, states), np.array(seconds)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_first_round_is_better_than_a_random_one(workload: str) -> None:
    """By the median of the round, and with about as good a best program."""
    scores, seconds = recorded(workload)
    assert len(seconds) > 2 * ROUND
    for seed in range(6):
        rng = np.random.default_rng(seed)
        generation = rng.choice(len(seconds), 2 * ROUND, replace=False)
        picked = seconds[generation[np.argsort(-scores[generation], kind="stable")[:ROUND]]]
        random = seconds[rng.choice(generation, ROUND, replace=False)]
        assert np.median(picked) < np.median(random), f"seed {seed}"
        assert picked.min() <= 1.1 * random.min(), f"seed {seed}"


@pytest.mark.parametrize("workload", WORKLOADS)
def test_most_pairs_are_in_the_right_order(workload: str) -> None:
    scores, seconds = recorded(workload)
    apart = seconds[:, None] > 1.1 * seconds[None]
    right = scores[:, None] < scores[None]
    assert right[apart].mean() > 0.75
