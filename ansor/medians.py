"""How surely a median is known, from the order of the values alone, and how that is said."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from ansor.wording import counted

_TAIL: Final = 20
"""One in so many medians lies outside: 95 % confidence."""


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
    count, skip = len(ordered), 0
    outside, ways = 0, 1  # of all 2**count ways to lie about the median, those with at most `cut` below it
    for cut in range(count // 2):
        outside += ways
        if 2 * outside * _TAIL > 2**count:
            break
        skip = cut
        ways = ways * (count - cut) // (cut + 1)
    return ordered[skip], ordered[-1 - skip]


def median_spread(values: Sequence[float]) -> float | None:
    """Give half the width of `median_interval` as a share of the median: 0.01 is plus or minus a percent.

    None for fewer than two values, which tell no spread, and where the median is 0.
    """
    middle = median(values) if len(values) > 1 else 0.0
    if not middle:
        return None
    low, high = median_interval(values)
    return (high - low) / (2 * middle)


def repeats_text(repeats: int, disturbed: int = 0, redone: int = 0) -> str:
    """Say what a run time rests on: "3 repeats, 2 disturbed and 1 redone because of another load"."""
    rests_on = counted(repeats, "repeat")
    noise = noise_text(disturbed, redone)
    return f"{rests_on}, {noise}" if noise else rests_on


def noise_text(disturbed: int, redone: int) -> str:
    """Say how many repeats another load disturbed, and how many were done again for that; "" for none."""
    noise = [f"{disturbed} disturbed"] if disturbed else []
    noise += [f"{redone} redone"] if redone else []
    return f"{' and '.join(noise)} because of another load" if noise else ""
