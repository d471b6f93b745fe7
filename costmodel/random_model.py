"""`RandomModel`: scores that carry no information, so that a search with it is random search."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ansor.checks import check_integer
from ansor.schedule.state import State
from ansor.schedule.step_base import Step
from ansor.task.task import Task
from costmodel.candidates import Candidates, batches_of
from costmodel.model import CostModel, FloatArray
from costmodel.storage import read_model, refusing, write_model
from measure import MeasureInput, MeasureResult
from sketches import Population

_KIND: Final = "RandomModel"


class RandomModel(CostModel):
    """
    A score in [0, 1) that depends on the seed, the task and the program's steps alone.

    Hashing instead of drawing keeps nothing between calls: a program has the same score whenever it is asked
    for, as a state or as a row of a population.

    Parameters
    ----------
    seed
        Two models with one seed agree on every program.

    Raises
    ------
    DefinitionError
        If the seed is no integer.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = check_integer("RandomModel(seed)", seed)

    @property
    def informative(self) -> bool:
        return False

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learned."""

    def predict(self, task: Task, candidates: Candidates) -> FloatArray:
        """Give every program its score."""
        scores = [self._score(task, steps) for batch in batches_of(candidates) for steps in _histories(batch)]
        return np.array(scores, dtype=np.float64)

    def save(self, file_name: str | Path) -> None:
        """Write the seed."""
        write_model(file_name, _KIND, {"seed": self.seed})

    def load(self, file_name: str | Path) -> None:
        """
        Take over the seed of a saved model.

        Raises
        ------
        LogFormatError
            If the file is not one that `save` wrote.
        """
        with refusing(file_name, _KIND):
            self.seed = check_integer("the seed", read_model(file_name, _KIND)["seed"])

    def _score(self, task: Task, steps: Sequence[Step]) -> float:
        text = json.dumps([self.seed, task.workload_key, [step.to_json() for step in steps]])
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _histories(batch: Population | list[State]) -> Iterable[Sequence[Step]]:
    if isinstance(batch, Population):
        return (batch.steps(row) for row in range(len(batch)))
    return (state.steps for state in batch)
