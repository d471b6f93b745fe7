"""What a draft leaves to be learned, and how far to trust it.

The slope leads from a draft's scores to those that a trained model corrects.

A draft is the logarithm of a speed that somebody estimated. If the estimates are good, a program that is
drafted to be twice as fast is nearly certainly the faster one, and the draft counts for much; if they are
rough, little. The slope is the one for which the draft explains the measured order best: the minimum of the
pairwise loss. Few measurements say little about it, so it begins at a usual value and moves from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from ansor.task.task import Task
from costmodel.losses import PairwiseLoss
from costmodel.rows import FloatArray, PackedRows

if TYPE_CHECKING:
    from costmodel.dataset import Dataset


class Drafter(Protocol):
    """A model that needs no training and that a learned one corrects; `AnalyticModel` is one.

    A `version` it may have, too: a text that differs where its estimates do. What was trained to correct one
    is not loaded to correct another.
    """

    def seconds_of(self, task: Task, features: PackedRows) -> FloatArray:
        """Estimate run times [s] from feature rows, shape ``(len(features),)``; inf for what cannot run."""
        ...


def described(drafter: Drafter | None) -> str | None:
    """The name and the version of a drafter, None without one."""
    if drafter is None:
        return None
    return " ".join(filter(None, (type(drafter).__name__, str(getattr(drafter, "version", "")))))


USUAL_SLOPE: Final = 1.5
"""Slope before anything is measured: chances of 8 to 1 per factor of 4 in speed."""
_TRUSTED_AT: Final = 32
_SPAN: Final = 8.0
_STEPS: Final = 33
_SLOWEST: Final = 1 / 64


def draft_scores(drafter: Drafter, task: Task, rows: PackedRows) -> FloatArray:
    """Base-2 logarithm of the estimated speed [1/s]; ``-inf`` for what cannot run."""
    seconds = drafter.seconds_of(task, rows)
    return np.where(seconds > 0, -np.log2(np.maximum(seconds, 1e-30)), -np.inf)


def slope_of(data: Dataset) -> float:
    """Find the slope that explains the order of measured programs best."""
    if not data.drafts.any():
        return 1.0
    loss = PairwiseLoss(data.labels, data.tasks, np.random.default_rng(0))
    slopes = USUAL_SLOPE * _SPAN ** np.linspace(-1.0, 1.0, _STEPS)
    losses = [loss.value(slope * data.drafts) for slope in slopes]
    if min(losses) == max(losses):  # Nothing tells one from another: all failed, or are as fast.
        return USUAL_SLOPE
    best = slopes[int(np.argmin(losses))]
    trust = len(data) / (len(data) + _TRUSTED_AT)
    return float(USUAL_SLOPE * (best / USUAL_SLOPE) ** trust)


def scaled_drafts(data: Dataset) -> FloatArray:
    """Return the drafts in the unit of trained scores."""
    return slope_of(data) * data.drafts


def draft_errors(data: Dataset) -> FloatArray:
    """
    By how much the speed of programs differs from their draft, in powers of two.

    Returns
    -------
    FloatArray
        Shape ``(len(data),)``; 0 in the mean over a task's programs. A failure counts as a program 64 times
        slower than the best.
    """
    errors = np.log2(np.maximum(data.labels, _SLOWEST)) - data.drafts
    sums = np.bincount(data.tasks, errors, minlength=len(data.task_keys))
    counts = np.bincount(data.tasks, minlength=len(data.task_keys))
    return errors - (sums / np.maximum(counts, 1))[data.tasks]
