"""`XGBModel`: the learned cost model, gradient-boosted trees over statement features.

How it is trained when records keep arriving, without starting over each time: the number of records at which
it learns from scratch forms a series, each a quarter larger than the last. In between, the trees of the last
such fit stay, and a few more are grown on all records to correct them. Which trees there are is therefore a
function of the records alone.

Trees read from a file are where such a series begins: they stay, corrected on what is measured here, until
there are as many records as they were grown on; then only those count. The file names the records behind its
trees, so that one that is told again counts once. The file of a model that was still warming up holds the
records themselves; who reads it goes on as if they had been measured here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_number
from ansor.errors import DefinitionError
from ansor.task.task import Task
from costmodel.boosting import Boosting, Trees, boost, grow_more
from costmodel.dataset import Dataset, MeasuredTask
from costmodel.drafts import Drafter, scaled_drafts, slope_of
from costmodel.learned import LearnedModel
from costmodel.losses import LOSSES, LossName
from costmodel.rows import FeatureSource, FloatArray, PackedRows
from costmodel.storage import refusing

REFIT_FACTOR: Final = 1.25
"""Growth of the records after which everything is learned anew."""
CORRECTION_ROUNDS: Final = 20
"""Trees that correct the last full fit on all records since."""

Digests = NDArray[np.uint64]


def _none() -> Digests:
    return np.zeros(0, np.uint64)


@dataclass(frozen=True, slots=True, eq=False)
class _Behind:
    """
    The records behind some trees, by their digests.

    Attributes
    ----------
    seen
        Of the measurements, unusable ones included; shape ``(measurements,)``.
    programs
        Of the programs that were learned from, by task.
    """

    seen: Digests = field(default_factory=_none)
    programs: Mapping[MeasuredTask, Digests] = field(default_factory=dict)

    def programs_of(self, task: MeasuredTask) -> Digests:
        """Give the digests of a task's programs."""
        found = (digests for one, digests in self.programs.items() if one.may_be(task))
        return np.concatenate([_none(), *found])

    def followed_by(self, later: _Behind) -> _Behind:
        """Append other records; what both have counts as theirs."""
        programs = {
            task: digests[~np.isin(digests, later.programs_of(task))]
            for task, digests in self.programs.items()
        }
        for task, digests in later.programs.items():
            programs[task] = np.concatenate([programs.get(task, _none()), digests])
        seen = self.seen[~np.isin(self.seen, later.seen)]
        return _Behind(np.concatenate([seen, later.seen]), programs)


class XGBModel(LearnedModel):
    """
    Trees that score statements; a program's score is their sum.

    Parameters
    ----------
    verbose_eval
        Log the held-out loss every so many trees, at level DEBUG.
    num_warmup_sample
        Programs to see before scores mean anything; up to that number they are random. Trees read from a file
        mean something at once.
    seed
        Seed of the random scores and of the training; default 0.
    model_file
        A file written by `save` to start from.
    adaptive_training
        Train only each time the records have grown by a fifth.
    loss
        What a good score is: one in the right order within its task ("pairwise"), or the relative speed
        ("squared").
    features
        Makes the rows; default the feature table.
    boosting
        How trees are grown, where that differs from the defaults.

    Raises
    ------
    DefinitionError
        If a parameter is of the wrong kind.
    FileNotFoundError, LogFormatError
        If there is no such model file, or it is none that `save` wrote.
    """

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | Path | None = None,
        adaptive_training: bool = False,
        *,
        loss: LossName | None = None,
        features: FeatureSource | None = None,
        boosting: Boosting | None = None,
    ) -> None:
        super().__init__(
            num_warmup_sample=num_warmup_sample,
            seed=0 if seed is None else seed,
            adaptive_training=adaptive_training,
            features=features,
        )
        if loss is not None and loss not in LOSSES:
            raise DefinitionError(f"XGBModel(loss={loss!r}): it must be one of {', '.join(LOSSES)}")
        if boosting is not None and not isinstance(boosting, Boosting):
            raise DefinitionError(
                f"XGBModel(boosting={boosting!r}): it must be a costmodel.boosting.Boosting"
            )
        if model_file is not None and not isinstance(model_file, (str, os.PathLike)):
            raise DefinitionError(
                f"XGBModel(model_file={model_file!r}): it must be the path of a saved model"
            )
        chosen = boosting or Boosting()
        self.boosting = replace(
            chosen, seed=self.seed, verbose_eval=verbose_eval, loss=chosen.loss if loss is None else loss
        )
        if model_file is not None:
            self.load(model_file)

    def forget(self) -> None:
        """Return to the state before the first record, loaded trees included."""
        self._loaded: tuple[Trees, ...] = ()
        self._loaded_from = _Behind()
        self._loaded_slope = 1.0
        super().forget()

    def _untrain(self) -> None:
        """Drop what training made of the records; loaded trees stay."""
        super()._untrain()
        self.slope = self._loaded_slope
        self._base: Trees | None = None
        self._base_count = 0
        self._trees = self._loaded

    @property
    def num_records(self) -> int:
        """Measurements seen, and those behind loaded trees as long as these count."""
        own = super().num_records
        if not self._counts_loaded:
            return own
        return own + int(np.count_nonzero(~np.isin(self._loaded_from.seen, self._collector.seen)))

    @property
    def _counts_loaded(self) -> bool:
        """Whether there are loaded trees, and fewer records than these were grown on."""
        return bool(self._loaded) and super().num_records < len(self._loaded_from.seen)

    def correct(self, drafter: Drafter) -> None:
        """
        From now on learn what another model's scores leave to be explained.

        Raises
        ------
        DefinitionError
            If this model has learned something already, or its loss is of another unit.
        """
        if self.boosting.loss == "squared":
            raise DefinitionError(
                "an XGBModel(loss='squared') predicts relative speeds and a draft their order; to correct a "
                "draft use loss='pairwise'"
            )
        super().correct(drafter)

    def count_of(self, task: Task) -> tuple[int, int]:
        """Count the programs learned from: those of a task on its machine, and all others."""
        if not self._counts_loaded:
            return super().count_of(task)
        behind = self._behind()
        own = len(behind.programs_of(MeasuredTask.of(task)))
        return own, sum(map(len, behind.programs.values())) - own

    def _behind(self) -> _Behind:
        """The records that scores rest on."""
        data = self.dataset
        programs = {
            task: data.digests[data.tasks == number] for number, task in enumerate(data.measured_tasks)
        }
        own = _Behind(self._collector.seen, programs)
        return self._loaded_from.followed_by(own) if self._counts_loaded else own

    @property
    def informative(self) -> bool:
        """Whether more than `num_warmup_sample` programs are known, or trees were loaded."""
        return bool(self._loaded) or super().informative

    def fit(self, data: Dataset) -> None:
        """Learn from scratch at the numbers of the series, and correct the last such fit in between."""
        count = self.last_checkpoint(len(data), REFIT_FACTOR)
        if self._counts_loaded:
            base = self._loaded
        else:
            self.slope = slope_of(data)
            if self._base is None or self._base.bins is None or self._base_count != count:
                first = data.take(slice(count))
                self._base, self._base_count = boost(first, self.boosting, scaled_drafts(first)), count
            base = (self._base,)
            if count == len(data):
                self._trees = base
                return
        start = self.slope * data.drafts + sum_of_trees(base, data.rows)
        self._trees = (*base, grow_more(data, self.boosting, start, CORRECTION_ROUNDS, base[0]))

    def score(self, rows: PackedRows) -> FloatArray:
        """Add up all trees over all rows of each program."""
        return sum_of_trees(self._trees, rows)

    def save(self, file_name: str | Path) -> None:
        """
        Write the trees and which records are behind them; the records themselves stay in their logs.

        Before there are trees that mean something, the records are written: there are few.
        """
        means_something = self.informative or self.drafter is not None
        if means_something:
            self.train()
        trees = self._trees if means_something else ()
        behind = self._behind() if trees else _Behind()
        more = {
            "loss": self.boosting.loss,
            "slope": self.slope if trees else 1.0,
            "trees": [group.to_json() for group in trees],
            "behind": behind.seen.tolist(),
            "programs": [[*task.to_json(), digests.tolist()] for task, digests in behind.programs.items()],
        }
        kept, seen = self.dataset, self._collector.seen
        if trees:
            kept, seen = Dataset.empty(self._collector.width or self.features.width), _none()
        self._write(file_name, kept, seen, more)

    def load(self, file_name: str | Path) -> None:
        """
        Replace what was learned by a saved model's trees or records; those seen so far are forgotten.

        Raises
        ------
        LogFormatError
            If the file is not one that `save` wrote, or was written with another feature table.
        """
        with refusing(file_name, type(self).__name__):
            header, data, seen = self._read(file_name)
            trees = tuple(Trees.from_json(content, data.rows.width) for content in header["trees"])
            boosting = replace(self.boosting, seed=header["seed"], loss=header["loss"])
            behind = _Behind(
                np.array(header["behind"], np.uint64),
                {
                    MeasuredTask.from_json(task): np.array(digests, np.uint64)
                    for *task, digests in header["programs"]
                },
            )
            slope = check_number("the slope", header["slope"])
        self.learn(data, seen)
        if trees:
            self._collector.width = data.rows.width
        self.seed, self.boosting = boosting.seed, boosting
        self._loaded, self._loaded_from, self._loaded_slope = trees, behind, slope
        self._untrain()

    @property
    def _can_score(self) -> bool:
        return bool(self._trees)


def sum_of_trees(groups: Sequence[Trees], rows: PackedRows) -> FloatArray:
    """Score programs by several groups of trees; 0 by none."""
    scores = np.zeros(len(rows))
    for trees in groups:
        scores += trees.apply(rows)
    return scores
