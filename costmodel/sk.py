"""Models of scikit-learn behind the same protocol.

They take one vector per program, so a program's rows are pooled: sum, mean and maximum of every column, side
by side. They predict the label, the speed relative to the best of the task.

A saved file holds the training data, not the fitted object: loading fits again, which gives the same model
because everything that fitting draws comes from the seed.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, Union

import numpy as np

from ansor.errors import DefinitionError
from ansor.plugins import blaming, check_plugin
from costmodel.dataset import Dataset
from costmodel.drafts import draft_errors
from costmodel.labels import weights_of
from costmodel.learned import LearnedModel
from costmodel.libraries import load_library
from costmodel.rows import POOLINGS, FeatureSource, FloatArray, PackedRows, Pooling

_ASKED: Final = ("fit", "predict")
_SEEDS: Final = 2**32
"""So many seeds scikit-learn tells apart."""
EstimatorName = Literal["hist_gradient_boosting", "random_forest", "ridge", "mlp"]


class Estimator(Protocol):
    """A regressor of scikit-learn, or anything that looks like one."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any: ...  # noqa: N803

    def predict(self, X: Any) -> Any: ...  # noqa: N803


class _Scaled(Estimator):
    """Another regressor behind columns scaled to mean 0 and deviation 1; constant columns stay 0."""

    def __init__(self, inner: Estimator) -> None:
        self._inner = inner

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
        self._mean, self._deviation = X.mean(axis=0), X.std(axis=0)
        self._deviation[self._deviation < 1e-9] = 1.0
        self._inner.fit(self._scale(X), y, sample_weight=sample_weight)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        return self._inner.predict(self._scale(X))

    def _scale(self, values: Any) -> Any:
        # A column far outside of what was seen says little more than that; clipping keeps it from ruling.
        return np.clip((values - self._mean) / self._deviation, -5.0, 5.0)


def _hist_gradient_boosting(seed: int) -> Estimator:
    model: Estimator = load_library("sklearn.ensemble").HistGradientBoostingRegressor(
        max_iter=100, learning_rate=0.1, max_leaf_nodes=15, min_samples_leaf=5, random_state=seed
    )
    return model


def _random_forest(seed: int) -> Estimator:
    model: Estimator = load_library("sklearn.ensemble").RandomForestRegressor(
        n_estimators=60, max_features=0.3, random_state=seed
    )
    return model


def _ridge(seed: int) -> Estimator:
    return _Scaled(load_library("sklearn.linear_model").Ridge(alpha=30.0, random_state=seed))


def _mlp(seed: int) -> Estimator:
    from sklearn.neural_network import MLPRegressor

    return _Scaled(
        _Mlp(MLPRegressor(hidden_layer_sizes=(64, 32), alpha=1e-2, max_iter=60, random_state=seed))
    )


class _Mlp(Estimator):
    """Fits without weights, and does not say that it could have gone on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:  # noqa: N803
        unfinished = load_library("sklearn.exceptions").ConvergenceWarning
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", unfinished)
            self._inner.fit(X, y)
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        return self._inner.predict(X)


ESTIMATORS: Final[Mapping[str, Callable[[int], Estimator]]] = MappingProxyType(
    {
        "hist_gradient_boosting": _hist_gradient_boosting,
        "random_forest": _random_forest,
        "ridge": _ridge,
        "mlp": _mlp,
    }
)
"""Makers of regressors, from a seed, by name."""


def _maker(estimator: object) -> Callable[[int], Estimator]:
    """Find out how a regressor is made from a seed."""
    if isinstance(estimator, str) and estimator in ESTIMATORS:
        return ESTIMATORS[estimator]
    if isinstance(estimator, str):
        known = ", ".join(ESTIMATORS)
        raise DefinitionError(f"SklearnModel({estimator!r}): known are {known}; or pass a regressor")
    if callable(estimator) and not isinstance(estimator, type) and not hasattr(estimator, "fit"):
        example = "a function from a seed to a new regressor, such as lambda seed: SVR()"
        check_plugin("SklearnModel(estimator)(0)", estimator(0), _ASKED, "regressor", example)
        return estimator
    example = "its name, a regressor such as SVR(), or a function from a seed to a new one"
    check_plugin("SklearnModel(estimator)", estimator, (*_ASKED, "get_params"), "regressor", example)
    return partial(_cloned, estimator)


def _cloned(estimator: Any, seed: int) -> Estimator:
    """Copy a regressor without what it learned, with a seed where it has none of its own."""
    copy = load_library("sklearn.base").clone(estimator)
    unset = {name: seed for name, value in copy.get_params().items() if value is None and _is_seed(name)}
    made: Estimator = copy.set_params(**unset)
    return made


def _weighs(estimator: Estimator) -> bool:
    """Whether a regressor takes weights; neighbours, pipelines and the like do not."""
    return "sample_weight" in inspect.signature(estimator.fit).parameters


def _is_seed(name: str) -> bool:
    return name.rpartition("__")[2] == "random_state"


class SklearnModel(LearnedModel):
    """
    A regressor over pooled rows.

    Parameters
    ----------
    estimator
        One of the names, a regressor, or a function from a seed to a new regressor. A regressor is never
        trained itself but cloned for each training, and what it draws comes from `seed` unless it has a
        `random_state` of its own.
    num_warmup_sample, seed, adaptive_training, features
        As in `LearnedModel`.
    pooling
        How rows become a vector: some of "sum", "mean", "max".

    Raises
    ------
    DefinitionError
        If there is no estimator or pooling of that name, or the estimator is no regressor.
    """

    def __init__(
        self,
        estimator: Union[EstimatorName, Estimator, Callable[[int], Estimator]] = "hist_gradient_boosting",
        *,
        num_warmup_sample: int = 100,
        seed: int = 0,
        adaptive_training: bool = False,
        features: FeatureSource | None = None,
        pooling: Sequence[Pooling] = POOLINGS,
    ) -> None:
        if isinstance(pooling, str) or not pooling or not set(pooling) <= set(POOLINGS):
            raise DefinitionError(f"SklearnModel(pooling={pooling!r}): known are {', '.join(POOLINGS)}")
        self._make = _maker(estimator)
        self.pooling = tuple(pooling)
        super().__init__(
            num_warmup_sample=num_warmup_sample,
            seed=seed,
            adaptive_training=adaptive_training,
            features=features,
        )

    def fit(self, data: Dataset) -> None:
        """Fit a new regressor to the labels, or to what a draft leaves of their logarithms."""
        self._regressor = self._make(self.seed % _SEEDS)
        targets = data.labels if self.drafter is None else draft_errors(data)
        weights = {"sample_weight": weights_of(data.labels)} if _weighs(self._regressor) else {}
        with blaming(f"{type(self._regressor).__name__} was fitted to {len(data)} programs"):
            self._regressor.fit(self._vectors(data.rows), targets, **weights)

    def score(self, rows: PackedRows) -> FloatArray:
        """Predict the programs' labels, or how far the draft is off."""
        return np.asarray(self._regressor.predict(self._vectors(rows)), dtype=np.float64)

    def _vectors(self, rows: PackedRows) -> FloatArray:
        """One vector per program; 0 stands for a number that is missing."""
        return np.nan_to_num(rows.pooled(self.pooling), nan=0.0)
