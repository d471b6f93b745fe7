"""How good a model's scores are, on programs whose run times are known.

All of them look at the order within a task, because that is all a search uses, and average over the tasks,
so that one with many programs counts no more than another.

- `order_accuracy`: of two programs of a task, how often the faster one has the higher score; 0.5 is chance.
- `top_recall`: how many of the truly best tenth are among the tenth with the highest scores; 0.1 is chance.
- `best_of_top`: measure the k highest-scored programs, keep the fastest: how fast is it, relative to the
  fastest of all? As a curve over k.
- `rmse`: distance to the labels, for models whose scores mean labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from costmodel.labels import FloatArray, Indices

_BLOCK = 1024
"""Programs whose pairs with all others are looked at together."""


def order_accuracy(scores: FloatArray, costs: FloatArray, tasks: Indices) -> float:
    """
    Share of pairs in the right order.

    Parameters
    ----------
    scores
        One per program, higher is better.
    costs
        Run times, infinite for a failure. A failure is slower than everything; two failures are no pair.
    tasks
        Task number of each program.

    Returns
    -------
    float
        In [0, 1]; equal scores count half. NaN if no task has two programs that differ.
    """
    return _mean(_order_accuracy(scores[at], costs[at]) for at in _members(tasks))


def _order_accuracy(scores: FloatArray, costs: FloatArray) -> float:
    pairs = right = equal = 0
    for start in range(0, len(costs), _BLOCK):
        block = slice(start, start + _BLOCK)
        cost, score = costs[block, None], scores[block, None]
        faster = cost < costs
        pairs += int(np.count_nonzero(faster))
        right += int(np.count_nonzero(faster & (score > scores)))
        equal += int(np.count_nonzero(faster & (score == scores)))
    return (right + 0.5 * equal) / pairs if pairs else float("nan")


def top_recall(scores: FloatArray, costs: FloatArray, tasks: Indices, share: float = 0.1) -> float:
    """Share of the fastest programs (`share` of each task's) that are among as many with top scores."""
    return _mean(_top_recall(scores[at], costs[at], share) for at in _members(tasks))


def _top_recall(scores: FloatArray, costs: FloatArray, share: float) -> float:
    count = ceil(share * len(costs))
    fastest = np.argsort(costs, kind="stable")[:count]
    fastest = fastest[np.isfinite(costs[fastest])]
    if not len(fastest):
        return float("nan")
    return float(np.isin(fastest, _ranking(scores)[:count]).mean())


def best_of_top(scores: FloatArray, costs: FloatArray, tasks: Indices, counts: Sequence[int]) -> list[float]:
    """Speed of the fastest of the `k` highest-scored programs, relative to the task's fastest, for each k."""
    return [_mean(_best_of_top(scores[at], costs[at], count) for at in _members(tasks)) for count in counts]


def _best_of_top(scores: FloatArray, costs: FloatArray, count: int) -> float:
    if not np.isfinite(costs).any():
        return float("nan")
    return float(costs.min() / costs[_ranking(scores)[:count]].min())


def rmse(scores: FloatArray, labels: FloatArray) -> float:
    """Root of the mean squared distance between scores and labels."""
    return float(np.sqrt(np.mean((scores - labels) ** 2)))


def _ranking(scores: FloatArray) -> NDArray[np.intp]:
    """Positions, the highest score first, the earlier of two equals first."""
    return np.argsort(-scores, kind="stable")


def _members(tasks: Indices) -> Iterator[NDArray[np.intp]]:
    for task in np.unique(tasks):
        yield np.flatnonzero(tasks == task)


def _mean(values: Iterator[float]) -> float:
    """Mean of the values that are numbers; NaN if none is."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")
