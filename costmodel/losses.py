"""What "a good score" means to a trained model: losses over the scores of whole programs.

A loss is made for one set of labels and asked again and again, once per tree, for the gradient at the current
scores. It works on programs; that a program's score is a sum over statements is the model's business.

- `SquaredLoss`: scores are labels. What TVM does, but with failures weighing something.
- `PairwiseLoss`: only the order within a task counts. Each program is compared with some others of its task;
  a pair in the wrong order costs by how much their labels differ, so confusing the best with the worst costs
  most. This is RankNet's logistic loss with a weight per pair, as in LambdaRank.

Sources: Ansor, OSDI 2020, section 5.2; Burges, "From RankNet to LambdaRank to LambdaMART", 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from costmodel.labels import FloatArray, Indices, weights_of

_PARTNERS: Final = 12
_LEAST_CURVATURE: Final = 1e-3


class Loss(Protocol):
    """A function of program scores; lower is better."""

    @property
    def terms(self) -> int:
        """How many comparisons it makes: of a score with a label, or of two scores, once each."""
        ...

    def gradient(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """First and second derivatives by each program's score, both of shape ``(programs,)``."""
        ...

    def value(self, scores: FloatArray) -> float:
        """Mean loss; 0 or above."""
        ...


class SquaredLoss(Loss):
    """Weighted squared distance to the labels."""

    def __init__(self, labels: FloatArray, tasks: Indices, rng: np.random.Generator) -> None:
        self._labels = labels
        self._weights = weights_of(labels)

    @property
    def terms(self) -> int:
        return len(self._labels)

    def gradient(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._weights * (scores - self._labels), self._weights

    def value(self, scores: FloatArray) -> float:
        total = float(self._weights.sum())
        return float((self._weights * (scores - self._labels) ** 2).sum()) / max(total, 1e-12)


class PairwiseLoss(Loss):
    """
    Logistic loss of the order of pairs.

    Parameters
    ----------
    labels, tasks
        Label and task number of each program.
    rng
        Chooses which programs are compared, once.
    """

    def __init__(self, labels: FloatArray, tasks: Indices, rng: np.random.Generator) -> None:
        self._count = len(labels)
        better, worse = order_pairs(labels, tasks, _PARTNERS, rng)
        self._better, self._worse = better, worse
        self._weights = labels[better] - labels[worse]
        if len(better):
            self._weights /= self._weights.mean()

    @property
    def terms(self) -> int:
        return len(np.unique(self._better * self._count + self._worse))

    def gradient(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        wrong = self._wrongness(scores)
        slope = self._weights * wrong
        curve = slope * (1 - wrong)
        first = self._collect(self._worse, slope) - self._collect(self._better, slope)
        second = self._collect(self._worse, curve) + self._collect(self._better, curve)
        return first, np.maximum(second, _LEAST_CURVATURE)

    def value(self, scores: FloatArray) -> float:
        if not len(self._better):
            return 0.0
        margin = scores[self._better] - scores[self._worse]
        return float((self._weights * np.logaddexp(0.0, -margin)).mean())

    def _wrongness(self, scores: FloatArray) -> FloatArray:
        """Chance that a pair is in the wrong order, as far as the scores know."""
        margin = scores[self._better] - scores[self._worse]
        wrong: FloatArray = 0.5 - 0.5 * np.tanh(0.5 * margin)
        return wrong

    def _collect(self, programs: Indices, values: FloatArray) -> FloatArray:
        """Add up values by program, per partner."""
        return np.bincount(programs, values, minlength=self._count) / _PARTNERS


LossName = Literal["pairwise", "squared"]
LOSSES: Final[Mapping[str, Callable[[FloatArray, Indices, np.random.Generator], Loss]]] = {
    "pairwise": PairwiseLoss,
    "squared": SquaredLoss,
}
"""The losses by name."""


def order_pairs(
    labels: FloatArray, tasks: Indices, partners: int, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """
    Choose pairs of programs of one task whose labels differ.

    Parameters
    ----------
    labels, tasks
        Label and task number of each program.
    partners
        How many others each program is compared with, at most.
    rng
        Source of randomness.

    Returns
    -------
    tuple[Indices, Indices]
        The better and the worse program of each pair.
    """
    left: list[NDArray[np.int64]] = []
    right: list[NDArray[np.int64]] = []
    for task in np.unique(tasks):
        members = rng.permutation(np.flatnonzero(tasks == task))
        count = len(members)
        if count < 2:
            continue
        shifts = 1 + rng.permutation(count - 1)[:partners]
        for shift in shifts if count - 1 > partners else range(1, count):
            left.append(members)
            right.append(np.roll(members, int(shift)))
    if not left:
        none = np.zeros(0, np.int64)
        return none, none
    first, second = np.concatenate(left), np.concatenate(right)
    swapped = labels[first] < labels[second]
    better, worse = np.where(swapped, second, first), np.where(swapped, first, second)
    differ = labels[better] > labels[worse]
    return better[differ], worse[differ]
