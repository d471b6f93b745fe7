"""Tile lengths that need not divide a loop's extent: how much they waste, which are legal, how to draw them.

A split by inner lengths of product `p` covers `ceil(extent / p) * p` iterations; *waste* is that number over
the extent, 1 for exact tiles. Some waste buys tiles that no divisor gives: sixes of a thousand, eights of 67.

A tuple that wastes little is an exact factorisation of a slightly larger number. So drawing draws a larger
number first, weighted by its number of factorisations, and then one of these (see `factors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketches.columns import Hole
from sketches.factors import (
    Lengths,
    enumerate_factorizations,
    factorization_count,
    sample_factorizations,
)

_CACHE = 4096
_MOST_NUMBERS = 64
"""So many numbers stand for a long range of padded extents: those with the most factorisations."""


def clip_lengths(extent: int, lengths: Lengths) -> Lengths:
    """
    Cut every length to what is left to split: tuples that make the same loops become equal.

    Parameters
    ----------
    extent
        Extent of the loop [iterations].
    lengths
        Inner lengths, shape `(rows, n)`, the last column innermost.
    """
    clipped = np.empty_like(lengths)
    rest = np.full(len(lengths), extent, dtype=np.int64)
    for level in range(lengths.shape[1] - 1, -1, -1):
        clipped[:, level] = np.minimum(lengths[:, level], rest)
        rest = -(-rest // clipped[:, level])
    return clipped


def outer_length(extent: int, lengths: Lengths) -> NDArray[np.int64]:
    """Length of part 0, `ceil(extent / product)`, shape `(rows,)`."""
    return np.asarray(-(-extent // lengths.prod(axis=1)), dtype=np.int64)


def waste_of(extent: int, lengths: Lengths) -> NDArray[np.float64]:
    """Covered over real iterations, shape `(rows,)`, at least 1."""
    inner = lengths.prod(axis=1)
    return np.asarray(-(-extent // inner) * inner / extent)


def tile_waste(holes: Sequence[Hole], values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Covered over real iterations of each row's most wasteful stage, shape `(rows,)`, rounded."""
    wastes: dict[str, NDArray[np.float64]] = {}
    for hole in holes:
        waste = waste_of(hole.extent, values[:, hole.start : hole.stop])
        stage = hole.columns[0].stage
        wastes[stage] = wastes[stage] * waste if stage in wastes else waste
    worst = np.ones(len(values))
    for waste in wastes.values():
        worst = np.maximum(worst, waste)
    return np.asarray(worst.round(9))


def sample_tilings(
    extent: int, lengths: int, limit: int, max_waste: float, rng: np.random.Generator, rows: int
) -> Lengths:
    """
    Draw tuples that waste at most `max_waste`, exact ones among them, each about equally likely.

    Parameters
    ----------
    extent
        Extent of the loop [iterations].
    lengths
        How many inner lengths.
    limit
        Largest innermost length.
    max_waste
        Largest covered / real, at least 1.
    rng
        Source of randomness.
    rows
        How many tuples.

    Returns
    -------
    Lengths
        Shape `(rows, lengths)`, clipped (`clip_lengths`).
    """
    numbers, edges = _padded_extents(extent, lengths, limit, max_waste)
    picked = np.minimum(np.searchsorted(edges, rng.random(rows), side="right"), len(numbers) - 1)
    drawn = np.empty((rows, lengths), dtype=np.int64)
    for which in np.unique(picked):
        members = np.flatnonzero(picked == which)
        drawn[members] = sample_factorizations(numbers[which], lengths, limit, rng, len(members))
    return clip_lengths(extent, drawn)


def enumerate_tilings(
    extent: int, lengths: int, limit: int, max_waste: float, at_most: int
) -> Lengths | None:
    """List all tuples that `sample_tilings` can draw, sorted; None if there may be more than `at_most`."""
    numbers, _ = _padded_extents(extent, lengths, limit, max_waste)
    if sum(factorization_count(number, lengths, limit) for number in numbers) > 8 * at_most:
        return None
    blocks = [enumerate_factorizations(number, lengths, limit) for number in numbers]
    found: Lengths = np.unique(clip_lengths(extent, np.concatenate(blocks)), axis=0)
    return found if len(found) <= at_most else None


@lru_cache(maxsize=_CACHE)
def _padded_extents(
    extent: int, lengths: int, limit: int, max_waste: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Numbers to factorise instead of the extent, and the upper edge in [0, 1] of each one's share."""
    longest = max(extent, int(extent * max_waste))
    if longest - extent < _MOST_NUMBERS:
        numbers = tuple(range(extent, longest + 1))
    else:
        even = np.linspace(extent, longest, 8 * _MOST_NUMBERS).astype(np.int64)
        looked_at = sorted({int(round_down) for step in (1, 8, 64) for round_down in even // step * step})
        looked_at = [number for number in looked_at if number > extent]
        looked_at.sort(key=lambda number: (-factorization_count(number, lengths, limit), number))
        numbers = (extent, *sorted(looked_at[:_MOST_NUMBERS]))
    weights: Any = np.array([factorization_count(number, lengths, limit) for number in numbers], dtype=float)
    return numbers, tuple(np.cumsum(weights / weights.sum()).tolist())
