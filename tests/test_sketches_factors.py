"""Exact factorisations: counts against brute force, uniform draws, reproducibility."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketches.factors import (
    divisors,
    enumerate_factorizations,
    factorization_count,
    prime_factors,
    sample_factorizations,
)


def brute_force(extent: int, lengths: int, limit: int) -> list[tuple[int, ...]]:
    """All tuples, by trying every combination of numbers."""
    return [
        row
        for row in product(range(1, extent + 1), repeat=lengths)
        if extent % int(np.prod(row)) == 0 and row[-1] <= limit
    ]


@pytest.mark.parametrize(
    ("extent", "three", "four"), [(512, 210, 700), (224, 220, 625), (97, 3, 4), (1, 1, 1)]
)
def test_counts_of_the_reference(extent: int, three: int, four: int) -> None:
    """Published sizes of the enumeration with the innermost length limited to 64."""
    assert factorization_count(extent, 3, 64) == three
    assert factorization_count(extent, 4, 64) == four
    assert len(enumerate_factorizations(extent, 3, 64)) == three


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 36), st.integers(1, 3), st.sampled_from([1, 2, 7, 64]))
def test_enumeration_is_brute_force(extent: int, lengths: int, limit: int) -> None:
    """The list has exactly the tuples that a blind search finds, in lexicographic order."""
    expected = brute_force(extent, lengths, limit)
    found = [tuple(row) for row in enumerate_factorizations(extent, lengths, limit).tolist()]
    assert found == expected
    assert factorization_count(extent, lengths, limit) == len(expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 4), st.sampled_from([1, 8, 64]), st.integers(0, 2**31))
def test_draws_are_legal(extent: int, lengths: int, limit: int, seed: int) -> None:
    """Every drawn tuple divides the extent and respects the limit; the same seed draws the same tuples."""
    rows = sample_factorizations(extent, lengths, limit, np.random.default_rng(seed), 20)
    assert rows.shape == (20, lengths)
    assert (extent % rows.prod(axis=1) == 0).all()
    assert (rows[:, -1] <= limit).all()
    again = sample_factorizations(extent, lengths, limit, np.random.default_rng(seed), 20)
    assert (rows == again).all()


@pytest.mark.parametrize(("extent", "lengths", "limit"), [(48, 3, 4), (36, 2, 64), (97, 3, 64), (64, 1, 16)])
def test_draws_are_uniform(extent: int, lengths: int, limit: int) -> None:
    """Every tuple of the enumeration is reached, each about equally often (five standard deviations)."""
    everything = {tuple(row) for row in enumerate_factorizations(extent, lengths, limit).tolist()}
    draws = 200 * len(everything)
    rows = sample_factorizations(extent, lengths, limit, np.random.default_rng(3), draws)
    values, counts = np.unique(rows, axis=0, return_counts=True)
    assert {tuple(row) for row in values.tolist()} == everything
    assert np.abs(counts - 200).max() < 5 * np.sqrt(200)


def test_a_smooth_extent_needs_no_list() -> None:
    """An extent with millions of factorisations is drawn from directly."""
    extent = 735134400
    assert factorization_count(extent, 3, 64) > 1_000_000
    rows = sample_factorizations(extent, 3, 64, np.random.default_rng(0), 1000)
    assert (extent % rows.prod(axis=1) == 0).all()


@given(st.integers(1, 3000))
def test_prime_factors_multiply_back(number: int) -> None:
    """Prime powers multiply to the number, and the divisors are those of a blind search."""
    assert int(np.prod([p**e for p, e in prime_factors(number)], dtype=np.int64)) == number
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)
