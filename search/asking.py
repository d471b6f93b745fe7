"""Asking a cost model, which may be anybody's: what goes wrong in it is said with its name.

A model that cannot be asked, or whose answer is no score for each program, is a mistake of its author. It
stops the run: scores that are not numbers, or too few of them, would put programs into an order that nobody
meant. What was measured is in the log by then, and the run goes on from there once the model is right.

What a model raises stays what it is, traceback included; a note says which model it was and what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ansor.errors import DefinitionError
from ansor.plugins import GO_ON, blaming, brief, check_plugin, count_of_programs
from ansor.schedule.state import State
from ansor.task.task import Task
from costmodel import CostModel, FloatArray
from measure import MeasureInput, MeasureResult
from search.titles import task_title

_ASKED: Final = ("informative", "update", "predict")
_RIGHT: Final = "higher is better, -inf for a program that should not be measured"


def check_model(where: str, model: object) -> None:
    """
    Refuse what is no cost model.

    Parameters
    ----------
    where
        The argument as the user wrote it, for the message.
    model
        What was given.

    Raises
    ------
    DefinitionError
        If it is a class, or lacks what is asked of a model.
    """
    example = "an object such as ansor.DraftedModel(), or of a subclass of ansor.CostModel"
    check_plugin(where, model, _ASKED, "cost model", example)


def scores_of(model: CostModel, task: Task, programs: Sequence[State]) -> FloatArray:
    """
    Ask a model to score programs.

    Returns
    -------
    FloatArray
        One number per program, shape ``(len(programs),)``: finite or ``-inf``.

    Raises
    ------
    DefinitionError
        If the answer is anything else.
    """
    how_many = count_of_programs(len(programs))
    asked = f"{type(model).__name__}.predict was asked to score {how_many} of {task_title(task)}"
    with blaming(asked, GO_ON):
        answer = model.predict(task, programs)
    try:
        scores = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError):
        raise DefinitionError(
            f"{asked} and returned {brief(answer)}, which is no array of numbers; return one number per "
            f"program, {_RIGHT}; {GO_ON}"
        ) from None
    if scores.shape != (len(programs),):
        raise DefinitionError(
            f"{asked} and returned an array of shape {scores.shape}; return one number per program, "
            f"shape ({len(programs)},), {_RIGHT}; {GO_ON}"
        )
    wrong = np.flatnonzero(np.isnan(scores) | (scores == np.inf))
    if len(wrong):
        raise DefinitionError(
            f"{asked} and returned {scores[wrong[0]]} for {len(wrong)} of them, first for program "
            f"{wrong[0]}; a score is a number, {_RIGHT}; {GO_ON}"
        )
    return scores


def teach(model: CostModel, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Hand measurements to a model."""
    with blaming(f"{type(model).__name__}.update was given {len(inputs)} measurements", GO_ON):
        model.update(inputs, results)


def unteach(model: CostModel, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
    """Make a model forget measurements that it may have been handed; one that cannot stays as it is."""
    if hasattr(model, "unlearn"):
        with blaming(f"{type(model).__name__}.unlearn was given {len(inputs)} measurements", GO_ON):
            model.unlearn(inputs, results)
