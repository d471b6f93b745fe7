"""Exact factorisations of a loop extent: counted, listed, and drawn uniformly, many at once.

A split of an extent `N` into `n + 1` parts is chosen by its `n` inner lengths `(l1, ..., ln)`: their
product divides `N`, part 0 is the quotient, and the innermost length has an upper limit. Uniform means
uniform over all such tuples.

Nothing here lists them in order to draw one. The innermost length is drawn first, each divisor `d` with
weight "number of ways to factor `N / d` into `n` ordered parts"; given that, the exponents of every prime
spread over the `n` remaining parts independently and uniformly. So drawing costs a few array operations
whatever the number of tuples, which for smooth extents runs into millions.

Source: section 4.2 of the Ansor sampling rules (FillTileSize); counts as in its tests.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

Lengths = NDArray[np.int64]
"""Tile lengths, shape `(rows, n)`: column `j` is the length of part `j + 1`, the last one innermost."""

_CACHE = 4096


@lru_cache(maxsize=_CACHE)
def prime_factors(number: int) -> tuple[tuple[int, int], ...]:
    """Prime factorisation of `number >= 1` as (prime, exponent) pairs, smallest prime first."""
    factors: list[tuple[int, int]] = []
    divisor = 2
    while divisor * divisor <= number:
        exponent = 0
        while number % divisor == 0:
            number //= divisor
            exponent += 1
        if exponent:
            factors.append((divisor, exponent))
        divisor += 1 if divisor == 2 else 2
    if number > 1:
        factors.append((number, 1))
    return tuple(factors)


@lru_cache(maxsize=_CACHE)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of `number >= 1`, ascending."""
    found = [1]
    for prime, exponent in prime_factors(number):
        found = [one * prime**power for one in found for power in range(exponent + 1)]
    return tuple(sorted(found))


def ordered_factorization_count(number: int, parts: int) -> int:
    """In how many ways `number` is a product of `parts` ordered factors."""
    count = 1
    for _, exponent in prime_factors(number):
        count *= comb(exponent + parts - 1, parts - 1)
    return count


def factorization_count(extent: int, lengths: int, innermost_limit: int) -> int:
    """
    Count the tuples of `lengths` inner tile lengths that divide `extent` exactly.

    Parameters
    ----------
    extent
        Loop extent [iterations], >= 1.
    lengths
        Number of inner lengths, i.e. parts minus one, >= 1.
    innermost_limit
        Largest value of the last length.

    Examples
    --------
    >>> factorization_count(512, 3, 64), factorization_count(97, 3, 64)
    (210, 3)
    """
    return sum(
        ordered_factorization_count(extent // innermost, lengths)
        for innermost in _innermost_choices(extent, innermost_limit)
    )


def enumerate_factorizations(extent: int, lengths: int, innermost_limit: int) -> Lengths:
    """List all tuples counted by `factorization_count`, shape `(count, lengths)`, in lexicographic order."""
    rows: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], rest: int) -> None:
        if len(prefix) == lengths - 1:
            rows.extend((*prefix, last) for last in _innermost_choices(rest, innermost_limit))
            return
        for length in divisors(rest):
            extend((*prefix, length), rest // length)

    extend((), extent)
    return np.array(rows, dtype=np.int64).reshape(len(rows), lengths)


def sample_factorizations(
    extent: int, lengths: int, innermost_limit: int, rng: np.random.Generator, rows: int
) -> Lengths:
    """
    Draw tuples of inner tile lengths, uniformly and independently.

    Parameters
    ----------
    extent, lengths, innermost_limit
        As in `factorization_count`.
    rng
        Source of randomness; the same state gives the same tuples.
    rows
        How many to draw.

    Returns
    -------
    Lengths
        Shape `(rows, lengths)`; every row's product divides `extent`.
    """
    result = np.ones((rows, lengths), dtype=np.int64)
    choices = np.array(_innermost_choices(extent, innermost_limit), dtype=np.int64)
    edges = np.array(_innermost_edges(extent, lengths, innermost_limit))
    picked = np.minimum(np.searchsorted(edges, rng.random(rows), side="right"), len(choices) - 1)
    result[:, -1] = choices[picked]
    if lengths == 1:
        return result
    for choice in np.unique(picked):
        members = np.flatnonzero(picked == choice)
        for prime, exponent in prime_factors(extent // int(choices[choice])):
            table = _prime_powers(prime, exponent, lengths)
            drawn = table[rng.integers(len(table), size=len(members))]
            result[members, :-1] *= drawn
    return result


@lru_cache(maxsize=_CACHE)
def _innermost_choices(extent: int, limit: int) -> tuple[int, ...]:
    return tuple(divisor for divisor in divisors(extent) if divisor <= limit)


@lru_cache(maxsize=_CACHE)
def _innermost_edges(extent: int, lengths: int, limit: int) -> tuple[float, ...]:
    """Upper edges in [0, 1] of each innermost choice's share of all tuples."""
    weights = [
        ordered_factorization_count(extent // choice, lengths) for choice in _innermost_choices(extent, limit)
    ]
    total, running, edges = sum(weights), 0, []
    for weight in weights:
        running += weight
        edges.append(running / total)
    return tuple(edges)


@lru_cache(maxsize=_CACHE)
def _prime_powers(prime: int, exponent: int, parts: int) -> Lengths:
    """All spreads of `prime ** exponent` over `parts` ordered factors; the first (quotient) is left out."""
    rows: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], rest: int) -> None:
        if len(prefix) == parts - 1:
            rows.append(prefix)
            return
        for power in range(rest + 1):
            extend((*prefix, prime**power), rest - power)

    extend((), exponent)
    return np.array(rows, dtype=np.int64).reshape(len(rows), parts - 1)
