"""Gradient-boosted trees whose leaves score statements and whose loss looks at programs.

A tree gives every feature row a number; a program's score is the sum over its rows. The loss is taken of the
program scores, and each row is handed its program's gradient, because the score grows with each row's output
one for one. Trees are added to given scores (`start`): those of earlier trees, or of another model whose
errors these shall correct.

Where there are enough programs, some are held out: boosting stops when their loss no longer falls, and keeps
the trees up to the best point.

Source: Ansor, OSDI 2020, section 5.2; reference section 6.3.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.task.hardware import default_num_threads
from costmodel.dataset import Dataset
from costmodel.losses import LOSSES, Loss, LossName
from costmodel.rows import FloatArray, PackedRows

if TYPE_CHECKING:
    from xgboost import Booster

HELD_OUT: Final = 0.125
"""Share of the programs that decides when to stop."""
LEAST_HELD_OUT: Final = 24
"""With fewer held-out programs than this, their loss says too little: all are learned from."""

_WAIT_VARIABLE: Final = "OMP_WAIT_POLICY"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Boosting:
    """
    How trees are grown.

    Parameters
    ----------
    rounds
        Most trees.
    patience
        Stop after so many trees without gain on the held-out programs.
    depth
        Of a tree; None: 2 for few programs, and 1 more each time they are four times as many. With a hundred
        programs deep trees learn them by heart.
    learning_rate, min_split_gain, min_child_weight, row_share, column_share, bins
        As in gradient boosting generally: share of a leaf's Newton step that is taken, least gain of a split,
        least curvature in a leaf, shares of rows and columns that a tree sees, bins of a column's histogram.
    loss
        Name of the loss.
    seed
        Of what training draws.
    verbose_eval
        Log the losses every so many trees, at level DEBUG; 0 never.
    """

    rounds: int = 120
    patience: int = 15
    depth: int | None = None
    learning_rate: float = 0.2
    min_split_gain: float = 1e-3
    min_child_weight: float = 0.1
    row_share: float = 1.0
    column_share: float = 0.3
    bins: int = 64
    loss: LossName = "pairwise"
    seed: int = 0
    verbose_eval: int = 25

    def depth_for(self, programs: int) -> int:
        """Depth of trees that learn from so many programs."""
        if self.depth is not None:
            return self.depth
        return min(max(int(1 + log(max(programs, 1) / 12.5, 4)), 2), 6)

    def booster_params(self, programs: int) -> dict[str, Any]:
        """The same in the library's names."""
        return {
            "tree_method": "hist",
            "max_depth": self.depth_for(programs),
            "eta": self.learning_rate,
            "gamma": self.min_split_gain,
            "min_child_weight": self.min_child_weight,
            "subsample": self.row_share,
            "colsample_bytree": self.column_share,
            "max_bin": self.bins,
            "base_score": 0.0,
            "seed": self.seed,
            "nthread": default_num_threads(),
            "verbosity": 0,
            "disable_default_eval_metric": 1,
        }


def load_library() -> Any:
    """
    Import xgboost, with threads that sleep while they wait.

    By default they spin. With fewer free cores than threads, as while programs are built beside it, training
    then takes ten times as long and more. The library looks at the variable once, when it is loaded.
    """
    before = os.environ.get(_WAIT_VARIABLE)
    os.environ.setdefault(_WAIT_VARIABLE, "passive")
    try:
        return importlib.import_module("xgboost")
    finally:
        if before is None:
            del os.environ[_WAIT_VARIABLE]


def boost(
    data: Dataset, settings: Boosting, start: FloatArray | None = None, *, hold_out: bool = True
) -> Booster:
    """
    Grow trees.

    Parameters
    ----------
    data
        What to learn from.
    settings
        How.
    start
        Scores that the trees' are added to, shape ``(len(data),)``; default 0.
    hold_out
        Hold some programs out to decide when to stop, where there are enough; else all rounds are run.
    """
    xgboost = load_library()
    begin = np.zeros(len(data)) if start is None else start
    outside = data.held_out(HELD_OUT) if hold_out else np.zeros(len(data), np.bool_)
    if outside.sum() < LEAST_HELD_OUT:
        outside[:] = False
    train = _Side(data, begin, ~outside, settings)
    shared = {"max_bin": settings.bins, "nthread": default_num_threads()}
    matrix = xgboost.QuantileDMatrix(train.rows.values, **shared)
    watching: dict[str, Any] = {}
    if outside.any():
        held = _Side(data, begin, outside, settings)
        watching = {
            "evals": [(xgboost.QuantileDMatrix(held.rows.values, ref=matrix, **shared), "held")],
            "custom_metric": lambda output, _: ("loss", held.value(output)),
            "callbacks": [xgboost.callback.EarlyStopping(rounds=settings.patience, save_best=True)],
        }
    booster: Booster = xgboost.train(
        settings.booster_params(len(data)),
        matrix,
        settings.rounds,
        obj=lambda output, _: train.row_gradient(output),
        verbose_eval=False,
        **watching,
    )
    _log.debug("%d programs, %d held out: %d trees", len(data), outside.sum(), booster.num_boosted_rounds())
    return booster


def apply_trees(booster: Booster, rows: PackedRows) -> FloatArray:
    """Add up the trees' outputs of each program's rows."""
    return rows.total(booster.inplace_predict(rows.values, predict_type="margin"))


def booster_to_json(booster: Booster) -> Any:
    """The library's own JSON form."""
    return json.loads(booster.save_raw("json").decode())


def booster_from_json(content: Any) -> Booster:
    """Invert `booster_to_json`."""
    booster: Booster = load_library().Booster({"nthread": default_num_threads()})
    booster.load_model(bytearray(json.dumps(content).encode()))
    return booster


class _Side:
    """Programs on one side of the split, with their loss."""

    def __init__(self, data: Dataset, start: FloatArray, mine: NDArray[np.bool_], settings: Boosting) -> None:
        programs = np.flatnonzero(mine)
        self.rows = data.rows.take(programs)
        self._start = start[programs]
        rng = np.random.default_rng(settings.seed)
        self._loss: Loss = LOSSES[settings.loss](data.labels[programs], data.tasks[programs], rng)

    def row_gradient(self, output: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Derivatives by the trees' output for each row."""
        first, second = self._loss.gradient(self._scores(output))
        return self.rows.spread(first), self.rows.spread(second)

    def value(self, output: Any) -> float:
        """Mean loss."""
        return self._loss.value(self._scores(output))

    def _scores(self, output: Any) -> FloatArray:
        return self._start + self.rows.total(output)
