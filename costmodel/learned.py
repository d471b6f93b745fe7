"""`LearnedModel`: the base of models that learn from feature rows.

It does what all of them share: collects measurements and logs, extracts each program's features once, trains
when somebody asks for scores and there is something new, and knows nothing (scores at random, `informative`
false) before it has seen more than `num_warmup_sample` programs. A model of your own is two methods::

    class Ridge(LearnedModel):
        def fit(self, data: Dataset) -> None:
            x = data.rows.pooled(["mean", "sum"])
            self.weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ data.labels)

        def score(self, rows: PackedRows) -> FloatArray:
            return rows.pooled(["mean", "sum"]) @ self.weights

What is learned is a function of the records in their order, never of how they were divided over calls of
`update`: that is why a resumed run finds the model that the interrupted one had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from ansor.errors import LogFormatError
from ansor.task.task import Task
from costmodel.candidates import Candidates
from costmodel.dataset import Collector, Dataset
from costmodel.model import CostModel, FloatArray
from costmodel.random_model import RandomModel
from costmodel.rows import FeatureSource, PackedRows, extract_rows
from costmodel.statements import StatementFeatures
from costmodel.storage import Arrays, read_arrays, write_arrays
from measure import MeasureInput, MeasureResult

_FIRST_CHECKPOINT = 16


class LearnedModel(CostModel):
    """
    A model that is trained on feature rows; subclasses write `fit` and `score`.

    Parameters
    ----------
    num_warmup_sample
        Programs to see before scores mean anything; up to that number they are random.
    seed
        Seed of the random scores, and of whatever training draws.
    adaptive_training
        Train less often: only on the first 16, 20, 24, ... programs, each number a fifth above the last.
    features
        Makes the rows; default the feature table.
    """

    def __init__(
        self,
        *,
        num_warmup_sample: int = 100,
        seed: int = 0,
        adaptive_training: bool = False,
        features: FeatureSource | None = None,
    ) -> None:
        self.num_warmup_sample = num_warmup_sample
        self.seed = seed
        self.adaptive_training = adaptive_training
        self.features: FeatureSource = StatementFeatures() if features is None else features
        self.forget()

    def forget(self) -> None:
        """Return to the state before the first record."""
        self._collector = Collector(self.features)
        self._trained_on = 0

    @abstractmethod
    def fit(self, data: Dataset) -> None:
        """Train on measured programs, in the order of measuring; there may be failures only among them."""

    @abstractmethod
    def score(self, rows: PackedRows) -> FloatArray:
        """Score programs, each with rows, after `fit`; shape ``(len(rows),)``, higher is better."""

    @property
    def num_records(self) -> int:
        """Measurements seen."""
        return len(self._collector)

    @property
    def informative(self) -> bool:
        """Whether more than `num_warmup_sample` programs are known."""
        return self.num_records > self.num_warmup_sample

    @property
    def dataset(self) -> Dataset:
        """What there is to learn from."""
        return self._collector.dataset

    def save(self, file_name: str | Path) -> None:
        """Write the training data; a model that is loaded from it trains again."""
        data = self.dataset
        header = {"seed": self.seed, "features": describe_features(self.features), "tasks": data.task_keys}
        arrays: Arrays = {
            "values": data.rows.values,
            "offsets": data.rows.offsets,
            "costs": data.costs,
            "tasks": data.tasks,
            "digests": data.digests,
            "seen": self._collector.seen,
        }
        write_arrays(file_name, type(self).__name__, header, arrays)

    def load(self, file_name: str | Path) -> None:
        """
        Replace all records by those of a saved model.

        Raises
        ------
        LogFormatError
            If the file is not one that `save` wrote, or was written with another feature table.
        """
        header, arrays = read_arrays(file_name, type(self).__name__)
        check_features(file_name, header["features"], self.features)
        self.forget()
        self.seed = int(header["seed"])
        rows = PackedRows(arrays["values"], arrays["offsets"])
        keys = tuple((key, target) for key, target in header["tasks"])
        data = Dataset(rows, arrays["costs"], arrays["tasks"], keys, arrays["digests"])
        self._collector.restore(data, arrays["seen"])

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take measurements in, failures included; training waits until scores are asked for."""
        self._collector.add(inputs, results)

    def update_from_file(self, file_name: str | Path, n_lines: int | None = None) -> None:
        """
        Take the records of a log in, or its first `n_lines` ones.

        Raises
        ------
        FileNotFoundError
            If there is no such log.
        LogFormatError
            If a line of the log cannot be understood.
        """
        self._collector.add_log(file_name, n_lines)

    def predict(self, task: Task, candidates: Candidates) -> FloatArray:
        """Score programs; ``-inf`` for one that has no rows, because it cannot run."""
        if not self.informative:
            return RandomModel(self.seed).predict(task, candidates)
        return self.predict_rows(extract_rows(self.features, task, candidates))

    def predict_rows(self, rows: PackedRows) -> FloatArray:
        """
        Score programs whose rows are known, by what was learned, however little; train first if needed.

        Parameters
        ----------
        rows
            Rows of `features`. A program without rows gets ``-inf``.
        """
        self.train()
        filled = np.flatnonzero(rows.counts > 0)
        scores = np.full(len(rows), -np.inf)
        if not self._can_score:
            scores[filled] = 0.0
        elif len(filled):
            scores[filled] = self.score(rows if len(filled) == len(rows) else rows.take(filled))
        return scores

    @property
    def _can_score(self) -> bool:
        """Whether `fit` has run; before, every program scores 0."""
        return self._trained_on > 0

    def train(self) -> bool:
        """Learn what is new, if anything; returns whether there was something to do."""
        data = self._collector.dataset
        count = self.last_checkpoint(len(data), 1.2) if self.adaptive_training else len(data)
        if count in (0, self._trained_on):
            return False
        self.fit(data.take(slice(count)))
        self._trained_on = count
        return True

    @staticmethod
    def last_checkpoint(count: int, factor: float) -> int:
        """Largest number of a growing series that is at most `count`; all numbers below 16 belong to it."""
        if count < _FIRST_CHECKPOINT:
            return count
        *_, last = takewhile(lambda number: number <= count, _series(_FIRST_CHECKPOINT, factor))
        return last


def describe_features(source: FeatureSource) -> dict[str, Any]:
    """What a saved model remembers of its features."""
    return {"version": source.version, "columns": source.width}


def check_features(file_name: str | Path, saved: Mapping[str, Any], source: FeatureSource) -> None:
    """
    See that a saved model was trained on rows like those of `source`.

    Raises
    ------
    LogFormatError
        If not.
    """
    mine = describe_features(source)
    if saved != mine:
        raise LogFormatError(
            f"{file_name}: trained on feature table {saved.get('version')} of {saved.get('columns')} "
            f"columns, and this is table {mine['version']} of {mine['columns']}; train it again from its "
            "logs (update_from_file)"
        )


def _series(first: int, factor: float) -> Iterator[int]:
    number = first
    while True:
        yield number
        number = max(number + 1, int(np.ceil(number * factor)))
