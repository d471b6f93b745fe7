"""The one protocol of cost models.

A policy asks `predict` which of its candidates to measure and tells `update` what came of it. Scores are
comparable within one task only; higher is better. A model draws nothing at random on its own account: equal
training data in equal order give equal scores, however the data were divided over calls of `update`, so that
a run replayed against its log proposes the same programs.

What was learned from some measurements can be taken back (`unlearn`): a run that goes on from its log tells
it again from the beginning.

Two ways to write one:

- Subclass `CostModel` and look at states: `predict` gets a sequence of states. A policy that works on columns
  passes a `Programs`, which is such a sequence and builds each state when it is looked at; a model for whole
  columns uses its `populations` instead.
- Subclass `LearnedModel` and learn from feature rows: it collects, caches and labels the training data, knows
  when to be informative and when to train; two methods, `fit` and `score`, are left to write.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.schedule.state import State
from ansor.task.task import Task
from measure import MeasureInput, MeasureResult

FloatArray = NDArray[np.float64]


class CostModel(Protocol):
    """What a policy needs of a model: subclass it and write `update` and `predict`."""

    @property
    def informative(self) -> bool:
        """Whether scores say anything; a policy draws no spare candidates for a model that knows nothing."""
        return True

    @property
    def tells_plans_apart(self) -> bool:
        """Whether scores depend on what is compiled alone, so that programs of unequal scores are different.

        Then the search need not lower two programs to see that they are not the same.
        """
        return False

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """
        Learn from measurements, failures included, in the order of the log.

        Where algorithms take turns in a log, each is told of in a call of its own, often one program at a
        time: training that takes long is better left until `predict` asks for scores.
        """
        ...

    def unlearn(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """
        Forget measurements, as if `update` had never been told of them; such as are not known are ignored.

        A run that goes on from its log asks for it before it tells the log again, round by round: a model
        that knew all of it would propose other programs than it did. One that does not write this method is
        told twice, and its runs cannot go on exactly where they stopped if it was taught the log before.
        """
        return

    def predict(self, task: Task, candidates: Sequence[State]) -> FloatArray:
        """
        Score programs of one task.

        Parameters
        ----------
        task
            What the programs compute, and for which machine.
        candidates
            The programs; a `Programs` where a policy has them as columns.

        Returns
        -------
        FloatArray
            One score per program, shape ``(len(candidates),)``, higher is better; ``-inf`` for a program that
            should not be measured. A program's score does not depend on the others asked for with it.
        """
        ...

    def save(self, file_name: str | Path) -> None:
        """Write what was learned to a file.

        Raises
        ------
        DefinitionError
            If this model has no such form.
        """
        raise DefinitionError(f"{type(self).__name__} cannot be saved; write its methods save and load")

    def load(self, file_name: str | Path) -> None:
        """Replace what was learned by what a file holds.

        Raises
        ------
        DefinitionError
            If this model has no such form.
        """
        raise DefinitionError(f"{type(self).__name__} cannot be loaded; write its methods save and load")
