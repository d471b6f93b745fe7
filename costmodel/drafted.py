"""`DraftedModel`: one model drafts, another refines.

The analytic model needs no measurements but is only roughly right; the learned one is right where it has seen
enough. The learned one is trained on what the draft gets wrong, and what it says is added to the draft in
proportion to how much it knows: with n measured programs of the task, n / (n + 64) of its correction. Before
about 64 measurements the draft dominates; before the first it is alone. Programs of other tasks count for an
eighth.

A program's score is a function of the program and of the records, not of what else it is asked with.

Source: Pruner (arXiv 2402.02361) for drafting by analysis and verifying by learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from ansor.errors import DefinitionError
from ansor.task.task import Task
from costmodel.analytic import AnalyticModel
from costmodel.candidates import Candidates
from costmodel.drafts import USUAL_SLOPE, Drafter, draft_scores
from costmodel.learned import LearnedModel
from costmodel.model import CostModel, FloatArray
from costmodel.rows import PackedRows, extract_rows
from costmodel.xgb import XGBModel
from measure import MeasureInput, MeasureResult

HALF_KNOWN_AT: Final = 64
OTHER_TASKS: Final = 1 / 8


class DraftedModel(CostModel):
    """
    A model without training, corrected by one that learns.

    Parameters
    ----------
    drafter
        Estimates run times from feature rows alone. Default: an `AnalyticModel`.
    learned
        Learns the corrections; a new model, whose feature rows the drafter is given too. Default: an
        `XGBModel`.

    Raises
    ------
    DefinitionError
        If the drafter is none, or the learned model has learned already, or cannot correct another.
    """

    def __init__(self, drafter: Drafter | None = None, learned: LearnedModel | None = None) -> None:
        self.drafter: Drafter = AnalyticModel() if drafter is None else drafter
        self.learned = XGBModel() if learned is None else learned
        _check_parts(self.drafter, self.learned)
        self.learned.correct(self.drafter)

    @property
    def informative(self) -> bool:
        """True: the draft says something from the start."""
        return True

    @property
    def tells_plans_apart(self) -> bool:
        """Whether the feature rows do, which both parts look at."""
        return self.learned.tells_plans_apart

    @property
    def num_records(self) -> int:
        """Measurements seen."""
        return self.learned.num_records

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take measurements in, failures included."""
        self.learned.update(inputs, results)

    def unlearn(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Forget measurements, as if they had never been taken in; trees from a file stay as they are."""
        self.learned.unlearn(inputs, results)

    def update_from_file(self, file_name: str | Path, n_lines: int | None = None) -> None:
        """
        Take the records of a log in, or its first `n_lines` ones; of a program measured again the first.

        Raises
        ------
        FileNotFoundError
            If there is no such log.
        LogFormatError
            If a line of the log cannot be understood.
        """
        self.learned.update_from_file(file_name, n_lines)

    def predict(self, task: Task, candidates: Candidates) -> FloatArray:
        """Score programs; ``-inf`` for one that has no rows, because it cannot run."""
        return self.predict_rows(task, extract_rows(self.learned.features, task, candidates))

    def predict_rows(self, task: Task, rows: PackedRows) -> FloatArray:
        """Score programs of a task whose rows are known."""
        drafts = draft_scores(self.drafter, task, rows)
        share = self.share(task)
        if share == 0.0:
            return USUAL_SLOPE * drafts
        corrections = self.learned.predict_rows(rows)
        return np.where(np.isfinite(drafts), self.learned.slope * drafts + share * corrections, -np.inf)

    def share(self, task: Task) -> float:
        """How much of the correction counts for a task, in [0, 1)."""
        own, others = self.learned.count_of(task)
        known = own + OTHER_TASKS * others
        return known / (known + HALF_KNOWN_AT)

    def save(self, file_name: str | Path) -> None:
        """Write what was learned."""
        self.learned.save(file_name)

    def load(self, file_name: str | Path) -> None:
        """
        Replace what was learned by what a file holds.

        Raises
        ------
        LogFormatError
            If the file is not one that `save` wrote.
        """
        self.learned.load(file_name)


def _check_parts(drafter: object, learned: object) -> None:
    """Refuse what cannot draft, and what cannot learn."""
    if isinstance(drafter, LearnedModel):
        name = type(drafter).__name__
        raise DefinitionError(
            f"DraftedModel(drafter={name}): this model learns, and a drafter knows without training; pass it "
            f"as the second part, DraftedModel(learned={name}(...)), and an AnalyticModel drafts for it"
        )
    if isinstance(drafter, type) or not callable(getattr(drafter, "seconds_of", None)):
        raise DefinitionError(
            f"DraftedModel(drafter={drafter!r}): a drafter is an object with a method "
            "seconds_of(task, features) that estimates run times, such as ansor.AnalyticModel()"
        )
    if not isinstance(learned, LearnedModel):
        raise DefinitionError(
            f"DraftedModel(learned={learned!r}): it must be an object of a subclass of ansor.LearnedModel, "
            "such as ansor.XGBModel()"
        )
