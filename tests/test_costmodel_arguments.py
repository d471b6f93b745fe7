"""What a cost model cannot be made from is refused when it is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ansor
from costmodel.analytic import CoreRates
from costmodel.boosting import Boosting

MODELS: Any = ansor
"""The models without their types, which refuse some of this too."""


class Regressor:
    """Looks like one of scikit-learn, but for what cloning asks."""

    def fit(self, X: Any, y: Any) -> None: ...

    def predict(self, X: Any) -> None: ...


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a learned model that drafts": (
        lambda: MODELS.DraftedModel(MODELS.XGBModel()),
        "DraftedModel(drafter=XGBModel): this model learns",
    ),
    "nothing that drafts": (
        lambda: MODELS.DraftedModel(MODELS.RandomModel()),
        "a drafter is an object with a method seconds_of",
    ),
    "a class that drafts": (
        lambda: MODELS.DraftedModel(MODELS.AnalyticModel),
        "such as ansor.AnalyticModel()",
    ),
    "an analytic model that learns": (
        lambda: MODELS.DraftedModel(learned=MODELS.AnalyticModel()),
        "such as ansor.XGBModel()",
    ),
    "a warm-up in words": (
        lambda: MODELS.XGBModel(num_warmup_sample="100"),
        "XGBModel(num_warmup_sample) must be an integer, found '100'",
    ),
    "half a seed": (lambda: MODELS.XGBModel(seed=0.5), "XGBModel(seed) must be an integer"),
    "a negative seed": (lambda: MODELS.SklearnModel(seed=-1), "SklearnModel(seed) must be an integer of at"),
    "a log for verbosity": (
        lambda: MODELS.XGBModel("log.json"),
        "Boosting(verbose_eval) must be an integer",
    ),
    "a number for a file": (
        lambda: MODELS.XGBModel(model_file=3),
        "XGBModel(model_file=3): it must be the path of a saved model",
    ),
    "adapting by a number": (
        lambda: MODELS.XGBModel(adaptive_training=2),
        "XGBModel(adaptive_training=2): it must be True or False",
    ),
    "an unknown loss": (
        lambda: MODELS.XGBModel(loss="rmse"),
        "XGBModel(loss='rmse'): it must be one of pairwise, squared",
    ),
    "a class for features": (
        lambda: MODELS.XGBModel(features=MODELS.FeatureSource),
        "XGBModel(features=",
    ),
    "parameters in a dict": (
        lambda: MODELS.XGBModel(boosting={"rounds": 3}),
        "it must be a costmodel.boosting.Boosting",
    ),
    "no trees": (lambda: Boosting(rounds=0), "Boosting(rounds) must be an integer of at least 1"),
    "a share above 1": (lambda: Boosting(column_share=3), "Boosting(column_share=3): a share is at most 1"),
    "an estimator that is no function": (
        lambda: MODELS.SklearnModel(3),
        "SklearnModel(estimator)=3: it is no regressor, for it has no fit and no predict",
    ),
    "a class for an estimator": (
        lambda: MODELS.SklearnModel(Regressor),
        "SklearnModel(estimator)=Regressor: it is a class; pass an object, Regressor()",
    ),
    "a function that makes no estimator": (
        lambda: MODELS.SklearnModel(lambda seed: seed),
        "SklearnModel(estimator)(0)=0: it is no regressor, for it has no fit and no predict",
    ),
    "an estimator that cannot be cloned": (
        lambda: MODELS.SklearnModel(Regressor()),
        "for it has no get_params; pass its name, a regressor such as SVR(), or a function from a seed",
    ),
    "an unknown estimator": (
        lambda: MODELS.SklearnModel("svm"),
        "known are hist_gradient_boosting",
    ),
    "an unknown pooling": (
        lambda: MODELS.SklearnModel(pooling=["median"]),
        "known are sum, mean, max",
    ),
    "a pooling in one word": (lambda: MODELS.SklearnModel(pooling="sum"), "known are sum, mean, max"),
    "a seed in words": (lambda: MODELS.RandomModel("7"), "RandomModel(seed) must be an integer, found '7'"),
    "rates that are a number": (
        lambda: MODELS.AnalyticModel(3e9),
        "it must be a costmodel.analytic.CoreRates",
    ),
    "a core that stands still": (
        lambda: CoreRates(hertz=0),
        "CoreRates(hertz) must be a finite number above 0",
    ),
    "nothing issued": (
        lambda: CoreRates(issue_per_port=0),
        "CoreRates(issue_per_port) must be a finite number above 0",
    ),
    "more than all": (lambda: CoreRates(overlap=2), "CoreRates(overlap=2): it is a part, at most 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_model_is_refused(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(ansor.DefinitionError, match=re.escape(message)):
        make()


@pytest.mark.parametrize("kind", ["XGBModel", "SklearnModel", "RandomModel", "AnalyticModel", "DraftedModel"])
def test_a_file_that_is_not_there_is_named_with_what_to_do(kind: str, tmp_path: Path) -> None:
    model, name = getattr(MODELS, kind)(), "XGBModel" if kind == "DraftedModel" else kind
    with pytest.raises(FileNotFoundError) as caught:
        model.load(tmp_path / "missing")
    where = f"{name}.load('{tmp_path / 'missing'}'): No such file or directory"
    assert str(caught.value) == f"{where}; give the path of a file that {name}.save wrote"
    with pytest.raises(FileNotFoundError) as caught:
        model.save(tmp_path / "gone" / "model")
    assert f"{name}.save('{tmp_path / 'gone' / 'model'}'): No such file" in str(caught.value)
    assert "a folder that exists" in str(caught.value)
    with pytest.raises(IsADirectoryError, match=f"{name}.load"):
        model.load(tmp_path)
