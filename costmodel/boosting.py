"""Gradient-boosted trees whose leaves score statements and whose loss looks at programs.

A tree gives every feature row a number; a program's score is the sum over its rows. The loss is taken of the
program scores, and each row is handed its program's gradient, because the score grows with each row's output
one for one. Trees are added to given scores (`start`): those of earlier trees, or of another model whose
errors these shall correct.

Where there are enough programs, some are held out: boosting stops when their loss no longer falls, and keeps
the trees up to the best point. Many tasks with two or three programs each are not enough where the loss is of
pairs: held out are few of one task.

Source: Ansor, OSDI 2020, section 5.2; TVM 0.16, `cost_model/xgb_model.py`.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import dataclass, replace
from functools import cache
from math import log
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.checks import check_fields, check_integer
from ansor.errors import DefinitionError
from ansor.task.host import available_cores, default_num_threads
from costmodel.dataset import Dataset
from costmodel.libraries import load_library
from costmodel.losses import LOSSES, LossName
from costmodel.rows import FloatArray, Indices, PackedRows

if TYPE_CHECKING:
    from xgboost import Booster, QuantileDMatrix

HELD_OUT: Final = 0.125
"""Share of the programs that decides when to stop."""
HELD_OUT_SEED: Final = 0x5EED_570B
"""Chooses them. No seed that a split for testing has: of what that one leaves, none would be chosen."""
LEAST_HELD_OUT: Final = 24
"""With fewer held-out programs than this, or fewer comparisons (`Loss.terms`), their loss says too little:
all are learned from."""
_SEEDS: Final = 2**63
"""So many seeds the library tells apart."""

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
        Log the held-out loss every so many trees, at level DEBUG.

    Raises
    ------
    DefinitionError
        If a number is out of range.
    """

    rounds: int = 60
    patience: int = 10
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

    def __post_init__(self) -> None:
        check_fields(self, "seed", "verbose_eval", low=0, check=check_integer)
        check_fields(self, "rounds", "patience", low=1, check=check_integer)
        check_fields(self, "bins", low=2, check=check_integer)
        if self.depth is not None:
            check_fields(self, "depth", low=1, check=check_integer)
        check_fields(self, "min_split_gain", "min_child_weight", low=0)
        check_fields(self, "learning_rate", "row_share", "column_share", above=0)
        for name in ("row_share", "column_share"):
            if getattr(self, name) > 1:
                raise DefinitionError(f"Boosting({name}={getattr(self, name)}): a share is at most 1")
        if self.loss not in LOSSES:
            raise DefinitionError(f"Boosting(loss={self.loss!r}): it must be one of {', '.join(LOSSES)}")

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
            "seed": self.seed % _SEEDS,
            "nthread": _num_threads(),
            "verbosity": 0,
            "disable_default_eval_metric": 1,
        }


@cache
def _first_process() -> int:
    """The process that asked first, in which the library has its threads."""
    return os.getpid()


def _is_forked() -> bool:
    """Whether this process was forked from one that used the library: OpenMP waits for threads left there."""
    return os.getpid() != _first_process()


def _num_threads() -> int:
    return 1 if _is_forked() else min(default_num_threads(), available_cores())


@dataclass(frozen=True, eq=False)
class Trees:
    """
    Trained trees.

    Attributes
    ----------
    booster
        The library's object.
    bins
        The training data as the library keeps it; where it cut the columns serves later trees too. None for
        trees from a file, and for copies, as the library can copy none.
    """

    booster: Booster
    bins: QuantileDMatrix | None = None

    def __reduce__(self) -> tuple[type[Trees], tuple[Booster]]:
        return Trees, (self.booster,)

    def __len__(self) -> int:
        return self.booster.num_boosted_rounds()

    def apply(self, rows: PackedRows) -> FloatArray:
        """Add up the trees' outputs over the rows of each program."""
        if _is_forked():  # Those of trees made before have more.
            self.booster.set_param({"nthread": _num_threads()})
        return rows.total(self.booster.inplace_predict(rows.values, predict_type="margin"))

    def to_json(self) -> Any:
        """Give the library's own JSON form."""
        return json.loads(self.booster.save_raw("json").decode())

    @classmethod
    def from_json(cls, content: Any, width: int) -> Trees:
        """Invert `to_json`; a ValueError if it is none of trees for rows of so many columns."""
        booster = load_library("xgboost").Booster({"nthread": _num_threads()})
        booster.load_model(bytearray(json.dumps(content).encode()))
        if booster.num_features() != width:
            raise ValueError(f"trees for {booster.num_features()} columns, and there are {width}")
        return cls(booster)


def boost(data: Dataset, settings: Boosting, start: FloatArray | None = None) -> Trees:
    """
    Grow trees; where there are enough programs, some are held out to decide when to stop.

    Parameters
    ----------
    data
        What to learn from.
    settings
        How.
    start
        Scores that the trees' are added to, shape ``(len(data),)``; default 0.
    """
    start = np.zeros(len(data)) if start is None else start
    held = _Side(data, start, np.flatnonzero(data.held_out(HELD_OUT, HELD_OUT_SEED)), settings)
    return _grow(data, settings, start, held if held.is_enough else None, None)


def grow_more(data: Dataset, settings: Boosting, start: FloatArray, rounds: int, after: Trees) -> Trees:
    """
    Grow a fixed number of trees on all of `data`, correcting the scores `start`.

    Parameters
    ----------
    data, settings, start
        As for `boost`.
    rounds
        How many trees.
    after
        Trees grown before on part of the data; columns are cut where they were cut for those.
    """
    return _grow(data, replace(settings, rounds=rounds), start, None, after.bins)


def _grow(
    data: Dataset,
    settings: Boosting,
    start: FloatArray,
    held: _Side | None,
    bins: QuantileDMatrix | None,
) -> Trees:
    xgboost = load_library("xgboost")
    shared = {"max_bin": settings.bins, "nthread": _num_threads()}
    outside = np.zeros(0, np.int64) if held is None else held.programs
    train = _Side(data, start, np.delete(np.arange(len(data)), outside), settings)
    matrix = xgboost.QuantileDMatrix(train.rows.values, ref=bins, **shared)
    watching: dict[str, Any] = {}
    if held is not None:
        watching = {
            "evals": [(xgboost.QuantileDMatrix(held.rows.values, ref=matrix, **shared), "held")],
            "custom_metric": lambda output, _: ("loss", held.value(output)),
            "callbacks": [
                xgboost.callback.EarlyStopping(rounds=settings.patience, save_best=True),
                xgboost.callback.EvaluationMonitor(period=max(settings.verbose_eval, 1), logger=_log.debug),
            ],
        }
    booster = xgboost.train(
        settings.booster_params(len(data)),
        matrix,
        settings.rounds,
        obj=lambda output, _: train.row_gradient(output),
        verbose_eval=False,
        **watching,
    )
    trees = Trees(booster, matrix)
    _log.debug("%d programs, %d held out: %d trees", len(data), len(outside), len(trees))
    return trees


class _Side:
    """Programs on one side of the split, with their loss."""

    def __init__(self, data: Dataset, start: FloatArray, programs: Indices, settings: Boosting) -> None:
        self.programs = programs
        self.rows = data.rows.take(programs)
        self._start = start[programs]
        rng = np.random.default_rng(settings.seed)
        self._loss = LOSSES[settings.loss](data.labels[programs], data.tasks[programs], rng)

    @property
    def is_enough(self) -> bool:
        """Whether their loss can tell when to stop: see `LEAST_HELD_OUT`."""
        return min(len(self.programs), self._loss.terms) >= LEAST_HELD_OUT

    def row_gradient(self, output: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Derivatives by the trees' output for each row."""
        first, second = self._loss.gradient(self._scores(output))
        return self.rows.spread(first), self.rows.spread(second)

    def value(self, output: Any) -> float:
        """Mean loss."""
        return self._loss.value(self._scores(output))

    def _scores(self, output: Any) -> FloatArray:
        return self._start + self.rows.total(output)
