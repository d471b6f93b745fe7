"""Which of many tasks to tune next: by how fast the objective is expected to fall.

For a task with best latency g after t rounds the expected fall of g in the next round is estimated twice.
*Backward*: what the last w rounds brought, per round. *Forward*: optimistically, that another t rounds bring
g to nothing, so g / t a round; or that the task becomes almost as fast as the best of its group, similar
tasks of similar size, whichever is more. A weighted mean of the two, times the derivative of the objective
with respect to g, is the task's gradient; the steepest descent is tuned next.

Where TVM falls short this differs: the derivative is taken with a step relative to the latency (an
absolute one of 0.1 ms makes the latency of a small kernel negative), ties go to the living task with the
fewest rounds instead of to any task at random, dead ones included, and groups form by the computation's
skeleton where its author names none, instead of never.

Source: Zheng et al., OSDI 2020, section 6; `task_scheduler.py` of TVM 0.16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.task.task import Task
from ansor.te.tensor import ComputeOp
from measure.records.targets import RunsOn, runs_on, target_group
from search.skeleton import skeleton

FloatArray = NDArray[np.float64]
Objective = Callable[[Sequence[float]], float]

GROUP_ATTR: Final = "auto_scheduler_task_scheduler_tag"
_RELATIVE_STEP: Final = 1e-4
_SIZE_BASE: Final = 1.618
_EXTRA_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Allocation:
    """What is known of all tasks when the next one is chosen.

    Attributes
    ----------
    costs
        Best latency [s] per task.
    rounds
        Rounds spent per task, at least 1 for a living one.
    histories
        Best latency [s] after each round, per task.
    dead
        Tasks that are not tuned any more.
    """

    costs: Sequence[float]
    rounds: Sequence[int]
    histories: Sequence[Sequence[float]]
    dead: AbstractSet[int]

    @property
    def living(self) -> list[int]:
        return [task for task in range(len(self.costs)) if task not in self.dead]


class SimilarityGroups:
    """
    Tasks of one kind, about one size and one target, whose best arithmetic rate is a hint for each of them.

    Parameters
    ----------
    tasks
        Their groups follow from the attribute ``auto_scheduler_task_scheduler_tag`` of an operation, else
        from the skeleton of the computation, together with the order of magnitude of the FLOPs.
    beta
        A task is expected to reach a `beta`-th of its group's best rate.
    """

    def __init__(self, tasks: Sequence[Task], beta: float) -> None:
        self.beta = beta
        self.flops = [max(0.0, task.compute_dag.flop_count) for task in tasks]
        self._members: dict[tuple[str, int, tuple[str, ...], RunsOn], list[int]] = {}
        for number, task in enumerate(tasks):
            magnitude = int(math.log(self.flops[number] + 1.0, _SIZE_BASE))
            kind = _tag(task), magnitude, target_group(str(task.target)), runs_on(task)
            self._members.setdefault(kind, []).append(number)

    def peers(self, task: int) -> list[int]:
        """Tasks of the group of `task`, itself included; only itself once it has left."""
        return next((members for members in self._members.values() if task in members), [task])

    def expected(self, task: int, costs: Sequence[float]) -> float:
        """Latency [s] that the group's best rate suggests for `task`; infinite without a group."""
        peers = self.peers(task)
        rate = max(self.flops[peer] / costs[peer] for peer in peers)
        if len(peers) < 2 or rate <= 0:
            return math.inf
        return self.beta * self.flops[task] / rate

    def note_round(self, task: int, costs: Sequence[float], rounds: Sequence[int]) -> None:
        """Let a task leave its group that had many more rounds than the others and is still far behind."""
        peers = self.peers(task)
        others = [peer for peer in peers if peer != task]
        if not others or rounds[task] <= _EXTRA_ROUNDS + max(rounds[other] for other in others):
            return
        best = max(self.flops[peer] / costs[peer] for peer in peers)
        if self.flops[task] / costs[task] < best / self.beta:
            peers.remove(task)


def _tag(task: Task) -> str:
    for op in task.compute_dag.ops:
        if isinstance(op, ComputeOp) and GROUP_ATTR in op.attrs:
            return str(op.attrs[GROUP_ATTR])
    return skeleton(task.compute_dag)


def gradients(
    known: Allocation, groups: SimilarityGroups, objective: Objective, *, alpha: float, window: int
) -> FloatArray:
    """
    Expected change of the objective by one more round of each task.

    Returns
    -------
    FloatArray
        Per task, at most 0; 0 for a dead one.
    """
    result = np.zeros(len(known.costs))
    for task in known.living:
        cost, rounds, history = known.costs[task], known.rounds[task], known.histories[task]
        step = max(_RELATIVE_STEP * cost, np.finfo(np.float64).tiny)
        nudged = [c - step if i == task else c for i, c in enumerate(known.costs)]
        slope = (objective(list(known.costs)) - objective(nudged)) / step
        last = len(history) - 1
        backward = (history[last] - history[last - window]) / window if last >= window else 0.0
        forward = min(cost - cost / max(1, rounds), groups.expected(task, known.costs)) - cost
        result[task] = min(0.0, slope * (alpha * backward + (1.0 - alpha) * forward))
    return result


def steepest(known: Allocation, slopes: FloatArray) -> int:
    """Choose the living task with the most negative gradient; of equals the least tuned, then the first."""
    return min(known.living, key=lambda task: (slopes[task], known.rounds[task], task))
