"""Numbers given as options: what is refused, and how the refusal reads."""

import math

import numpy as np
import pytest

from ansor.checks import check_number
from ansor.errors import DefinitionError
from ansor.runtime.timing import time_calls


@pytest.mark.parametrize("value", [1, 1.5, np.float32(2), np.int64(3)])
def test_numbers_in_range_pass(value):
    check_number("span", value, low=1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, "1", None, True, 1 + 0j, np.float32("nan")])
def test_others_are_refused_by_name(value):
    with pytest.raises(DefinitionError, match="span must be a finite number of at least 0"):
        check_number("span", value, low=0)


@pytest.mark.parametrize("value", [1.0, 0, math.nan, np.float64(3)])
def test_integers(value):
    with pytest.raises(DefinitionError, match="count must be an integer above 0, found"):
        check_number("count", value, above=0, integer=True)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_repeat_needs_a_finite_duration(value):
    with pytest.raises(DefinitionError, match="min_repeat_ms"):
        time_calls(lambda number: 1e-3, number=1, repeat=1, min_repeat_ms=value)
