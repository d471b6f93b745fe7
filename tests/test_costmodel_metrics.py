"""Labels, losses and metrics against slow counts in plain Python."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel import metrics
from costmodel.labels import WEIGHT_FLOOR, throughput_labels, weights_of
from costmodel.losses import LOSSES, order_pairs

COSTS = st.lists(st.sampled_from([1.0, 2.0, 2.5, 4.0, 9.0, math.inf]), min_size=2, max_size=12)


def test_labels_are_relative_to_the_best_of_the_task() -> None:
    costs = np.array([2.0, 5.0, 1.0, np.inf, 10.0, np.inf])
    tasks = np.array([0, 1, 0, 0, 1, 2])
    assert throughput_labels(costs, tasks).tolist() == [0.5, 1.0, 1.0, 0.0, 0.5, 0.0]
    assert throughput_labels(np.zeros(0), np.zeros(0, np.int64)).shape == (0,)


def test_failures_weigh_something() -> None:
    assert weights_of(np.array([0.0, 0.1, 1.0])).tolist() == [WEIGHT_FLOOR, WEIGHT_FLOOR, 1.0]


@given(COSTS, st.randoms(use_true_random=False))
def test_order_accuracy_counts_pairs(costs: list[float], random: object) -> None:
    scores = [float(random.randint(0, 4)) for _ in costs]  # type: ignore[attr-defined]
    right = total = 0.0
    for (cost, score), (other, other_score) in itertools.permutations(zip(costs, scores, strict=True), 2):
        if cost < other:
            total += 1
            right += 1.0 if score > other_score else 0.5 if score == other_score else 0.0
    found = metrics.order_accuracy(np.array(scores), np.array(costs), np.zeros(len(costs), np.int64))
    assert math.isnan(found) if not total else found == pytest.approx(right / total)


@given(COSTS)
def test_perfect_scores_are_perfect(costs: list[float]) -> None:
    array, tasks = np.array(costs), np.zeros(len(costs), np.int64)
    scores = throughput_labels(array, tasks)
    for value in (
        metrics.order_accuracy(scores, array, tasks),
        metrics.top_recall(scores, array, tasks, 0.3),
        *metrics.best_of_top(scores, array, tasks, [1, 3]),
    ):
        assert math.isnan(value) or value == 1.0
    assert metrics.rmse(scores, scores) == 0.0


def test_top_recall_is_the_share_of_the_best_that_is_found() -> None:
    costs = np.arange(1.0, 41.0)
    scores = -costs.copy()
    scores[[0, 1]] = -100.0, -101.0
    assert metrics.top_recall(scores, costs, np.zeros(40, np.int64)) == 0.5


def test_best_of_top_is_a_rising_curve_of_relative_speed() -> None:
    costs = np.array([4.0, 2.0, 1.0])
    scores = np.array([3.0, 2.0, 1.0])
    assert metrics.best_of_top(scores, costs, np.zeros(3, np.int64), [1, 2, 3, 9]) == [0.25, 0.5, 1.0, 1.0]


def test_tasks_count_alike_whatever_their_size() -> None:
    costs = np.array([1.0, 2.0, *np.arange(1.0, 21.0)])
    tasks = np.array([0, 0] + [1] * 20)
    scores = np.where(tasks == 0, -costs, costs)
    assert metrics.order_accuracy(scores, costs, tasks) == 0.5


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_those_of_the_value(name: str) -> None:
    """In direction: each loss may scale its gradient, but must fall along it and vanish nowhere else."""
    rng = np.random.default_rng(0)
    labels, tasks = rng.random(30), np.repeat([0, 1], 15)
    loss = LOSSES[name](labels, tasks, np.random.default_rng(1))
    scores = rng.standard_normal(30)
    first, second = loss.gradient(scores)
    assert (second > 0).all()
    step = 1e-6
    slopes = []
    for program in range(30):
        up, down = scores.copy(), scores.copy()
        up[program] += step
        down[program] -= step
        slopes.append((loss.value(up) - loss.value(down)) / (2 * step))
    assert np.corrcoef(slopes, first)[0, 1] == pytest.approx(1.0, abs=1e-6)
    assert loss.value(scores - 1e-2 * first) < loss.value(scores)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_failures_alone_are_flat_and_finite(name: str) -> None:
    loss = LOSSES[name](np.zeros(5), np.zeros(5, np.int64), np.random.default_rng(0))
    first, second = loss.gradient(np.zeros(5))
    assert np.abs(first).max() < 1e-12
    assert np.isfinite(second).all()
    assert loss.value(np.zeros(5)) == pytest.approx(0.0, abs=1e-12)


def test_terms_of_a_loss_are_what_it_compares_once_each() -> None:
    """Two programs of one label are no pair, and two of different tasks none either."""
    labels, tasks = np.array([1.0, 0.5, 0.5, 1.0, 0.2, 1.0]), np.array([0, 0, 0, 1, 1, 2])
    terms = {name: LOSSES[name](labels, tasks, np.random.default_rng(0)).terms for name in LOSSES}
    assert terms == {"pairwise": 3, "squared": 6}


@given(st.integers(0, 20), st.integers(1, 30), st.integers(0, 5))
def test_pairs_are_of_one_task_and_ordered(count: int, partners: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, tasks = rng.integers(0, 4, count) / 4, rng.integers(0, 3, count)
    better, worse = order_pairs(labels, tasks, partners, rng)
    assert (tasks[better] == tasks[worse]).all()
    assert (labels[better] > labels[worse]).all()
    if partners >= 20:
        expected = sum(
            tasks[i] == tasks[j] and labels[i] > labels[j] for i in range(count) for j in range(count)
        )
        assert len(set(zip(better.tolist(), worse.tolist(), strict=True))) == expected


def test_pairs_of_many_programs_are_counted_in_blocks() -> None:
    """What is right does not depend on blocks, and memory grows with the programs, not with their pairs."""
    rng = np.random.default_rng(0)
    count = 5000
    costs, scores = rng.integers(1, 40, count).astype(float), rng.integers(0, 9, count).astype(float)
    costs[::7] = np.inf
    tracemalloc.start()
    found = metrics.order_accuracy(scores, costs, np.zeros(count, np.int64))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 1024 * count
    pairs = right = 0.0
    for cost, score in zip(costs, scores, strict=True):
        slower = costs > cost
        pairs += slower.sum()
        right += (slower & (scores < score)).sum() + 0.5 * (slower & (scores == score)).sum()
    assert found == pytest.approx(right / pairs)
