"""Numbers given as options: what is refused, and how the refusal reads."""

import math

import numpy as np
import pytest

import ansor
from ansor.checks import check_integer, check_number
from ansor.errors import DefinitionError
from ansor.runtime.timing import time_calls
from costmodel.boosting import Boosting


@pytest.mark.parametrize("value", [1, 1.5, np.float32(2), np.int64(3), 10**400])
def test_numbers_in_range_pass_as_python_s_own(value):
    found = check_number("span", value, low=1)
    assert found == value
    assert type(found) is (int if isinstance(value, (int, np.integer)) else float)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda number: ansor.TuningOptions(seed=number), "seed"),
        (lambda number: ansor.TuningOptions(num_measure_trials=number), "num_measure_trials"),
        (lambda number: ansor.HardwareParams(num_cores=number), "num_cores"),
        (lambda number: ansor.XGBModel(seed=number), "seed"),
        (lambda number: ansor.RandomModel(seed=number), "seed"),
        (lambda number: ansor.LocalRunner(repeat=number), "repeat"),
        (lambda number: ansor.LocalRunner(timeout=number), "timeout"),
        (lambda number: ansor.LocalBuilder(timeout=number), "timeout"),
        (lambda number: Boosting(seed=number), "seed"),
    ],
)
def test_options_keep_numpy_s_numbers_as_python_s_own(make, name):
    """Which JSON, the system's calls and the library of trees do not take."""
    assert type(getattr(make(np.int64(4)), name)) is int


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, "1", None, True, 1 + 0j, np.float32("nan")])
def test_others_are_refused_by_name(value):
    with pytest.raises(DefinitionError, match="span must be a finite number of at least 0"):
        check_number("span", value, low=0)


@pytest.mark.parametrize("value", [1.0, 0, math.nan, np.float64(3)])
def test_integers(value):
    with pytest.raises(DefinitionError, match="count must be an integer above 0, found"):
        check_integer("count", value, above=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_repeat_needs_a_finite_duration(value):
    with pytest.raises(DefinitionError, match="min_repeat_ms"):
        time_calls(lambda number: 1e-3, number=1, repeat=1, min_repeat_ms=value)
