"""What a cost model would have believed of a log's programs before it saw their results.

A log does not hold predictions, but it holds what a model learns from, in order. So a new model goes through
the log as a search would have: it predicts a round of programs, is then told their results, and goes on. What
it says of a round it has not learned from yet is compared with what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ansor.errors import AnsorError
from ansor.schedule.state import State
from ansor.task.task import Task
from ansor.wording import counted
from costmodel import CostModel
from costmodel.metrics import order_accuracy
from measure import MeasureInput
from search.report.data import Attempt, TaskHistory

ROUND = 32
"""Programs between two lessons."""


@dataclass(frozen=True, slots=True)
class Belief:
    """
    Predictions of one task's programs.

    Attributes
    ----------
    pairs
        Attempts with the scores that they had before they were learned from, higher is better.
    order
        Share of pairs of these programs that the scores put in the right order; None without such pairs. Of
        several algorithms the mean, as a model does not compare them.
    model, round_size
        What kind of model scored them, and after how many programs it learned each time.
    """

    pairs: tuple[tuple[Attempt, float], ...]
    order: float | None
    model: str
    round_size: int


def believed(history: TaskHistory, model: CostModel, round_size: int = ROUND) -> Belief | str:
    """
    Let `model` go through a task's log; a sentence that says why if nothing can be predicted.

    Programs whose steps do not apply here are left out, and so are scores that are not finite.
    """
    try:
        tasks = _known_tasks(history)
    except AnsorError as error:  # A target that is not known here.
        return f"No program can be shown to a model: {error}."
    if not tasks:
        return "Its workload is not known here, so no program can be shown to a model."
    known = [(a, state) for a in history.attempts if (state := history.state_of(a)) is not None]
    pairs: list[tuple[Attempt, float]] = []
    for start in range(0, len(known), round_size):
        some = known[start : start + round_size]
        if model.informative:
            for key, task in tasks.items():
                if mine := [(a, state) for a, state in some if a.algorithm == key]:
                    pairs += _scored(task, model, mine)
        inputs = [MeasureInput(tasks[a.algorithm], state) for a, state in some]
        model.update(inputs, [attempt.first for attempt, _ in some])
    if not pairs:
        return _too_few(len(known), type(model).__name__, round_size)
    costs = np.array([np.inf if a.seconds is None else a.seconds for a, _ in pairs])
    scores = np.array([score for _, score in pairs])
    numbers = {key: number for number, key in enumerate(tasks)}
    order = order_accuracy(scores, costs, np.array([numbers[a.algorithm] for a, _ in pairs], np.int64))
    return Belief(tuple(pairs), None if np.isnan(order) else order, type(model).__name__, round_size)


def _known_tasks(history: TaskHistory) -> dict[str, Task]:
    """Tasks of the algorithms whose workloads are known here, by these; raises where the target is not."""
    found: dict[str, Task] = {}
    for key, attempts in history.algorithms.items():
        logged = attempts[0].record[0].task
        if (dag := history.dag_of(logged.workload_key)) is not None:
            found[key] = logged.with_dag(dag) if isinstance(logged, Task) else logged.to_task(dag)
    return found


def _too_few(known: int, model: str, round_size: int) -> str:
    """Why there are no predictions: all programs are lessons of the first round."""
    if known > round_size:
        return f"A new {model} gave none of the programs a score."
    programs = counted(known, "program")
    return (
        f"A log holds no predictions: a new {model} learns from the first {round_size} programs and scores "
        f"those after them. This task has {programs} so far; more than {round_size} are needed."
    )


def _scored(
    task: Task, model: CostModel, some: Sequence[tuple[Attempt, State]]
) -> list[tuple[Attempt, float]]:
    scores = model.predict(task, [state for _, state in some])
    return [
        (attempt, float(score))
        for (attempt, _), score in zip(some, scores, strict=True)
        if np.isfinite(score)
    ]
