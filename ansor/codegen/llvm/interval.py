"""Intervals of integers, and what they decide."""

from __future__ import annotations

Bound = int | None
"""An end of an interval; None if it is not known."""


def decide(op: str, low: Bound, high: Bound) -> bool | None:
    """What `difference op 0` is for all differences in the interval, if it is the same."""
    below, above = high is not None and high < 0, low is not None and low > 0
    not_above, not_below = high is not None and high <= 0, low is not None and low >= 0
    zero = low == 0 and high == 0
    true, false = {
        "lt": (below, not_below),
        "le": (not_above, above),
        "gt": (above, not_above),
        "ge": (not_below, below),
        "eq": (zero, below or above),
        "ne": (below or above, zero),
    }[op]
    return True if true else False if false else None
