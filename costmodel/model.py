"""The one protocol of cost models.

A policy asks `predict` which of its candidates to measure and tells `update` what came of it. Scores are
comparable within one task only; higher is better. A model draws nothing at random on its own account: equal
training data in equal order give equal scores, so that a run replayed against its log proposes the same
programs.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.state import State
from ansor.task.task import Task
from measure import MeasureInput, MeasureResult

FloatArray = NDArray[np.float64]


class CostModel(Protocol):
    """What a policy needs of a model; subclass it, or write the two methods and the property."""

    @property
    def informative(self) -> bool:
        """Whether scores say anything; a policy draws no spare candidates for a model that knows nothing."""
        return True

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measurements, failures included, in the order of the log."""
        ...

    def predict(self, task: Task, states: Sequence[State]) -> FloatArray:
        """
        Score programs of one task.

        Returns
        -------
        FloatArray
            One score per state, shape ``(len(states),)``, higher is better; ``-inf`` for a program that
            should not be measured.
        """
        ...
