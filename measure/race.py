"""Which of several programs that are measured in turn are worth another round.

Rounds are compared one by one, because what changes with time, such as the clock of the processor, hits all
programs of a round alike: a program is behind if it was slower than the leader in each of them. By noise
alone that happens now and then, but to programs that are as good as equal, of which it does not matter which
wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from measure.records.record import MeasureResult
from measure.records.settled import merged

LEAST_ROUNDS: Final = 2
"""Rounds that a program has in any case."""
BEHIND: Final = 1.005
"""A program that takes so many times as long as the leader in each round is behind it."""

Rounds = Sequence[MeasureResult]
"""The results of one program, round by round."""


def still_racing(programs: Sequence[Rounds], racing: Sequence[int]) -> list[int]:
    """Tell which of the racing programs, all of which had the same rounds, may be the fastest."""
    able = [one for one in racing if all(part.ok for part in programs[one])]
    if not able or len(programs[able[0]]) < LEAST_ROUNDS:
        return able
    leader = programs[min(able, key=lambda one: merged(programs[one]).mean_cost)]
    return [one for one in able if not _is_behind(programs[one], leader)]


def unsettled_best(programs: Sequence[Rounds], rounds: int) -> int | None:
    """Tell which program looks best, if it was taken out of the race before it had all rounds."""
    able = [one for one, parts in enumerate(programs) if all(part.ok for part in parts)]
    best = min(able, key=lambda one: merged(programs[one]).mean_cost, default=None)
    return None if best is None or len(programs[best]) >= rounds else best


def _is_behind(program: Rounds, leader: Rounds) -> bool:
    pairs = zip(program, leader, strict=True)
    return all(median(mine.costs) > BEHIND * median(theirs.costs) for mine, theirs in pairs)
