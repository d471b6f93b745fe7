"""The one source of randomness of random graphs and schedules.

Hypothesis drives it in property tests (so that failures shrink: smaller choices are simpler programs), a
numpy generator in long runs (so that a seed is a reproducer).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

Item = TypeVar("Item")


class Chooser:
    """Picks integers; everything random is built from `below(n)`, an integer in 0..n-1."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below

    @classmethod
    def from_data(cls, data: Any) -> Chooser:
        """Choices drawn from Hypothesis' `st.data()`."""
        return cls(lambda n: int(data.draw(st.integers(0, n - 1))))

    @classmethod
    def from_seed(cls, seed: int) -> Chooser:
        """Choices of a numpy generator."""
        rng = np.random.default_rng(seed)
        return cls(lambda n: int(rng.integers(n)))

    def one_of(self, items: Sequence[Item]) -> Item:
        return items[self.below(len(items))]

    def between(self, low: int, high: int) -> int:
        """An integer in low..high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, of: int) -> bool:
        """True once in `of` times."""
        return self.below(of) == of - 1

    def permutation(self, n: int) -> list[int]:
        order = list(range(n))
        for a in range(n - 1, 0, -1):
            b = a - self.below(a + 1)
            order[a], order[b] = order[b], order[a]
        return order
