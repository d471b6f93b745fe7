"""`RandomModel`: scores that carry no information, so that a search with it is random search."""

import hashlib
from collections.abc import Sequence

import numpy as np

from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel.model import CostModel, FloatArray
from measure import MeasureInput, MeasureResult


class RandomModel(CostModel):
    """
    A score in [0, 1) that depends on the seed and the program's text alone.

    Hashing instead of drawing keeps nothing between calls: a program has the same score whenever it is
    asked for.

    Parameters
    ----------
    seed
        Two models with one seed agree on every program.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @property
    def informative(self) -> bool:
        return False

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learned."""

    def predict(self, task: Task, states: Sequence[State]) -> FloatArray:
        """Give every state its score; shape ``(len(states),)``."""
        return np.array([self._score(task, state) for state in states], dtype=np.float64)

    def _score(self, task: Task, state: State) -> float:
        text = f"{self.seed}\n{task.workload_key}\n{state}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
