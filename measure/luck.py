"""How much too good the figures of programs look that were measured once.

A machine has faster and slower hours: the first 64 programs of a product that reads 64 MiB took from 0.5 ms
on, and the best 26 of these from 0.94 ms on minutes later, since others wanted the memory, too (2 cores of a
Zen 5). Beside such figures the next best one of the first hour, which nobody measured again, would win. On a
steady machine the best of many noisy figures are lucky ones, too, and those that were measured again tell by
how much.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Final

from measure.record import MeasureResult

LEAST: Final = 3
"""Programs that must have been measured again: of fewer each may have had a luck of its own."""

Repeats = tuple[int, int]


def repeats_of(result: MeasureResult) -> Repeats:
    """Count those that nothing disturbed, and all."""
    return len(result.costs) - result.disturbed, len(result.costs)


@dataclass(frozen=True, slots=True)
class Luck:
    """
    What programs of one task took when they were measured again, over what they seemed to take at first.

    Attributes
    ----------
    factor
        The median, at least 1.
    repeats
        The least that results rest on which were measured again: what rests on fewer was not.
    """

    factor: float = 1.0
    repeats: Repeats = (0, 0)

    @classmethod
    def of(cls, results: Iterable[tuple[MeasureResult, MeasureResult]]) -> Luck:
        """Learn it from the first result of each program and the one that counts."""
        again = [(first, last) for first, last in results if last is not first and first.ok and last.ok]
        if len(again) < LEAST:
            return cls()
        factor = median(last.mean_cost / first.mean_cost for first, last in again)
        return cls(max(1.0, factor), min(repeats_of(last) for _, last in again))

    def expected(self, result: MeasureResult) -> float:
        """Mean run time [s] to compare programs by: what it would be if the program was measured again."""
        return result.mean_cost * (self.factor if repeats_of(result) < self.repeats else 1.0)
