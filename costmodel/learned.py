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

A model learns from rows of one width: one for programs of a GPU is none for those of a CPU.

What is learned is a function of the records in their order, never of how they were divided over calls of
`update`: that is why a resumed run finds the model that the interrupted one had.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_integer
from ansor.errors import DefinitionError, LogFormatError
from ansor.task.task import Task
from costmodel.candidates import Candidates
from costmodel.dataset import Collector, Dataset, MeasuredTask
from costmodel.drafts import Drafter, described
from costmodel.model import CostModel, FloatArray
from costmodel.random_model import RandomModel
from costmodel.rows import FeatureSource, PackedRows, extract_rows
from costmodel.statements import StatementFeatures
from costmodel.storage import Arrays, read_arrays, refusing, write_arrays
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

    Raises
    ------
    DefinitionError
        If a parameter is of the wrong kind.
    """

    def __init__(
        self,
        *,
        num_warmup_sample: int = 100,
        seed: int = 0,
        adaptive_training: bool = False,
        features: FeatureSource | None = None,
    ) -> None:
        name = type(self).__name__
        num_warmup_sample = check_integer(f"{name}(num_warmup_sample)", num_warmup_sample)
        seed = check_integer(f"{name}(seed)", seed, low=0)
        if not isinstance(adaptive_training, bool):
            raise DefinitionError(
                f"{name}(adaptive_training={adaptive_training!r}): it must be True or False"
            )
        if features is not None and (
            isinstance(features, type) or not callable(getattr(features, "extract", None))
        ):
            raise DefinitionError(
                f"{name}(features={features!r}): it must be an object with version, width and "
                "extract(task, candidates), such as of a subclass of ansor.FeatureSource"
            )
        self.num_warmup_sample = num_warmup_sample
        self.seed = seed
        self.adaptive_training = adaptive_training
        self.features: FeatureSource = StatementFeatures() if features is None else features
        self.drafter: Drafter | None = None
        self.forget()

    @property
    def tells_plans_apart(self) -> bool:
        """Whether the feature rows do."""
        return bool(getattr(self.features, "tells_plans_apart", False))

    def forget(self) -> None:
        """Return to the state before the first record."""
        self._collector = Collector(self.features, self.drafter)
        self._untrain()

    def _untrain(self) -> None:
        """Drop what training made of the records."""
        self._trained_on = 0
        self.slope = 1.0

    def correct(self, drafter: Drafter) -> None:
        """
        From now on learn what another model's scores leave to be explained.

        Raises
        ------
        DefinitionError
            If this model has learned something already.
        """
        if self.num_records:
            raise DefinitionError(
                f"this {type(self).__name__} has learned from {self.num_records} measurements already, and "
                "not to correct another model; make a DraftedModel of a new one, then let that learn"
            )
        self.drafter = drafter
        self.forget()

    @abstractmethod
    def fit(self, data: Dataset) -> None:
        """
        Train on measured programs, in the order of measuring; there may be failures only among them.

        Behind a `DraftedModel` the scores to be learned are what `data.drafts`, times `slope` (which this
        method may set), leave to be explained. A model that looks at labels only is not wrong there either.
        """

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
        self._write(file_name, self.dataset, self._collector.seen, {})

    def _write(
        self, file_name: str | Path, data: Dataset, seen: NDArray[np.uint64], more: Mapping[str, Any]
    ) -> None:
        """Write records, digests of the measurements behind them, and what a subclass has besides."""
        features = {**self.describe_features(), "columns": data.rows.width}
        header = {
            "seed": self.seed,
            "features": features,
            "tasks": [one.to_json() for one in data.measured_tasks],
            **more,
        }
        arrays: Arrays = {
            "values": data.rows.values,
            "offsets": data.rows.offsets,
            "costs": data.costs,
            "tasks": data.tasks,
            "digests": data.digests,
            "drafts": data.drafts,
            "seen": seen,
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
        with refusing(file_name, type(self).__name__):
            header, data, seen = self._read(file_name)
        self.seed = header["seed"]
        self.learn(data, seen)

    def _read(self, file_name: str | Path) -> tuple[dict[str, Any], Dataset, NDArray[np.uint64]]:
        """Read what `_write` wrote, `refusing` the rest: the header, the records, the digests."""
        header, arrays = read_arrays(file_name, type(self).__name__)
        self.check_features(file_name, header["features"])
        header["seed"] = check_integer("the seed", header["seed"], low=0)
        rows = PackedRows(arrays["values"], arrays["offsets"])
        named = [MeasuredTask.from_json(items) for items in header["tasks"]]
        keys, machines = tuple(one.key for one in named), tuple(one.machine for one in named)
        costs, tasks, digests, drafts, seen = (
            arrays[name] for name in ("costs", "tasks", "digests", "drafts", "seen")
        )
        data = Dataset(rows, costs, tasks, keys, digests, drafts, machines)
        if not data.fits_together or seen.ndim != 1 or seen.dtype.kind not in "iu":
            raise ValueError("its arrays do not fit together")
        return header, data, seen

    def learn(self, data: Dataset, seen: NDArray[np.uint64] | None = None) -> None:
        """
        Replace all records by a data set, made with the same features and drafter as this model's.

        Parameters
        ----------
        data
            The programs.
        seen
            Digests of the measurements behind them, which `update` will know again; default: none.
        """
        self.forget()
        drafts = np.zeros(len(data)) if self.drafter is None else data.drafts
        self._collector.restore(replace(data, drafts=drafts), data.digests if seen is None else seen)

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take measurements in, failures included; training waits until scores are asked for."""
        self._collector.add(inputs, results)

    def unlearn(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Forget measurements, as if they had never been taken in; trees from a file stay as they are."""
        if self._collector.remove(inputs, results):
            self._untrain()

    def update_from_file(self, file_name: str | Path, n_lines: int | None = None) -> None:
        """
        Take the records of a log in, or its first `n_lines` ones; of a program measured again the first.

        The log of a run over one task, with or without alternatives, makes the model that the run had in the
        end. A run over several tasks learned from the same records, but task by task in the first rounds.

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

        Raises
        ------
        DefinitionError
            If they are of another width than those learned from.
        """
        self.train()
        filled = np.flatnonzero(rows.counts > 0)
        scores = np.full(len(rows), -np.inf)
        if not self._can_score:
            scores[filled] = 0.0
        elif len(filled):
            self._check_width(rows)
            scores[filled] = self.score(rows if len(filled) == len(rows) else rows.take(filled))
        return scores

    def _check_width(self, rows: PackedRows) -> None:
        """See that programs are of the kind that was learned from."""
        learned = self._collector.width
        if learned is not None and rows.width != learned:
            raise DefinitionError(
                f"this {type(self).__name__} has learned from programs with {learned} features a statement, "
                f"and is asked about one with {rows.width}; those of a GPU have more than those of a CPU: "
                "take a model for each"
            )

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

    def count_of(self, task: Task) -> tuple[int, int]:
        """Count the programs learned from: those of a task on its machine, and all others."""
        data, asked = self._collector.dataset, MeasuredTask.of(task)
        mine = [number for number, one in enumerate(data.measured_tasks) if one.may_be(asked)]
        count = int(np.count_nonzero(np.isin(data.tasks, mine)))
        return count, len(data) - count

    def describe_features(self) -> dict[str, Any]:
        """What a saved model remembers of what it was trained on."""
        return {
            "version": self.features.version,
            "columns": self.features.width,
            "drafter": described(self.drafter),
        }

    def check_features(self, file_name: str | Path, saved: Mapping[str, Any]) -> None:
        """
        See that a saved model was trained on what this one is.

        Raises
        ------
        LogFormatError
            If not.
        """
        mine = self.describe_features()
        if saved.get("drafter") != mine["drafter"]:
            raise LogFormatError(
                f"{file_name}: trained to correct {saved.get('drafter') or 'no other model'}, and this one "
                f"corrects {mine['drafter'] or 'none'}; DraftedModel.load reads what a DraftedModel with the "
                "same draft saved; else train it again from its logs (update_from_file)"
            )
        if saved.get("columns") in getattr(self.features, "widths", ()):
            mine["columns"] = saved["columns"]
        if saved != mine:
            raise LogFormatError(
                f"{file_name}: trained on feature table {saved.get('version')} of {saved.get('columns')} "
                f"columns, and this is table {mine['version']} of {mine['columns']}; train it again from its "
                "logs (update_from_file)"
            )

    @staticmethod
    def last_checkpoint(count: int, factor: float) -> int:
        """Largest number of a growing series that is at most `count`; all numbers below 16 belong to it."""
        if count < _FIRST_CHECKPOINT:
            return count
        *_, last = takewhile(lambda number: number <= count, _series(_FIRST_CHECKPOINT, factor))
        return last


def _series(first: int, factor: float) -> Iterator[int]:
    number = first
    while True:
        yield number
        number = max(number + 1, int(np.ceil(number * factor)))
