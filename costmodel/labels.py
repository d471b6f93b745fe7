"""What a model learns: labels in [0, 1], and how much each measurement weighs.

A program's label is the best run time of its task divided by its own: 1 for the best, 0.1 for one that takes
ten times as long. Tasks of different size thereby teach the same thing, and so does one task on different
machines, where it counts as several. A failed program has label 0, a task with nothing but failures 0
throughout.

Weights follow the label, because telling good programs apart matters more than telling bad ones apart; but
none is below a floor, failures included. With the label alone as weight, as in TVM, a failure would
weigh nothing and a model could never learn what fails.

Source: Ansor, OSDI 2020, section 5.2; TVM 0.16, `cost_model/xgb_model.py`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Indices = NDArray[np.int64]

WEIGHT_FLOOR: Final = 0.2
"""Least weight of a measurement, the best of a task having 1."""


def throughput_labels(costs: FloatArray, tasks: Indices) -> FloatArray:
    """
    Speed relative to the best of the same task.

    Parameters
    ----------
    costs
        Run times [s], shape ``(programs,)``; infinite for a failure.
    tasks
        Task number of each program, from 0.

    Returns
    -------
    FloatArray
        Labels in [0, 1], shape ``(programs,)``.

    Examples
    --------
    >>> throughput_labels(np.array([2.0, 1.0, np.inf, 8.0]), np.array([0, 0, 0, 1]))
    array([0.5, 1. , 0. , 1. ])
    """
    best = np.full(int(tasks.max(initial=-1)) + 1, np.inf)
    np.minimum.at(best, tasks, costs)
    labels = np.zeros(len(costs))
    ran = np.isfinite(costs)
    labels[ran] = best[tasks[ran]] / costs[ran]
    return labels


def weights_of(labels: FloatArray) -> FloatArray:
    """How much each measurement weighs: its label, at least `WEIGHT_FLOOR`."""
    return np.maximum(labels, WEIGHT_FLOOR)
