"""How surely a median is known, from the order of the values alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Final

CONFIDENCE: Final = 0.95


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Give the interval that holds the true median with 95 % confidence, whatever the distribution.

    Fewer than six values cannot tell that much: it is their whole range then, which holds the true median in
    ``1 - 2 ** (1 - n)`` of the cases.

    Raises
    ------
    ValueError
        If there are no values.
    """
    if not values:
        raise ValueError("there is no median of no values")
    ordered = sorted(values)
    count, tail, skip = len(ordered), 0.0, 0
    for cut in range(count // 2):
        tail += 2 * comb(count, cut) / 2**count
        if tail > 1 - CONFIDENCE:
            break
        skip = cut
    return ordered[skip], ordered[-1 - skip]
