"""What a cost model cannot be made from is refused when it is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import ansor
from costmodel.analytic import CoreRates
from costmodel.boosting import Boosting

MODELS: Any = ansor
"""The models without their types, which refuse some of this too."""

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
        "SklearnModel(3): it must be a name, or a function from a seed",
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
    "more than all": (lambda: CoreRates(overlap=2), "CoreRates(overlap=2): it is a part, at most 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_makes_no_model_is_refused(case: str) -> None:
    make, message = WRONG[case]
    with pytest.raises(ansor.DefinitionError, match=re.escape(message)):
        make()
