"""What a model is asked to score: states, or rows of populations that nobody has materialised.

`Programs` is both. It is a sequence of states, so a model that looks at one state after the other needs to
know nothing else; and it holds the populations, so a model that works on whole columns takes those and no
state is ever built.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Union, overload

from ansor.schedule.state import State
from sketches import Population

Candidates = Union[Sequence[State], Sequence[Population], Population]
"""What the models of this package score; a flat list of scores answers, populations row by row, in order."""


class Programs(Sequence[State]):
    """
    The rows of some populations as a sequence of states, each made when it is looked at.

    Parameters
    ----------
    populations
        Their rows follow each other in this order.
    """

    def __init__(self, populations: Iterable[Population] | Population) -> None:
        given = (populations,) if isinstance(populations, Population) else tuple(populations)
        self.populations: tuple[Population, ...] = given
        self._stops = list(accumulate(map(len, given)))

    def __len__(self) -> int:
        return self._stops[-1] if self._stops else 0

    @overload
    def __getitem__(self, position: int) -> State: ...

    @overload
    def __getitem__(self, position: slice) -> list[State]: ...

    def __getitem__(self, position: int | slice) -> State | list[State]:
        if isinstance(position, slice):
            return [self[each] for each in range(len(self))[position]]
        population, row = self.locate(position)
        return population.materialize(row)

    def locate(self, position: int) -> tuple[Population, int]:
        """
        Find the population and row of a program.

        Raises
        ------
        IndexError
            If there are not so many programs.
        """
        index = position + len(self) if position < 0 else position
        start = 0
        for population, stop in zip(self.populations, self._stops, strict=True):
            if start <= index < stop:
                return population, index - start
            start = stop
        raise IndexError(f"program {position} of {len(self)}")

    def __repr__(self) -> str:
        return f"Programs({len(self)} in {len(self.populations)} populations)"


def batches_of(candidates: Candidates) -> list[Population | list[State]]:
    """Divide candidates into populations and runs of states, in order."""
    if isinstance(candidates, Population):
        return [candidates]
    if isinstance(candidates, Programs):
        return list(candidates.populations)
    batches: list[Population | list[State]] = []
    for candidate in candidates:
        if isinstance(candidate, Population):
            batches.append(candidate)
        elif batches and isinstance(batches[-1], list):
            batches[-1].append(candidate)
        else:
            batches.append([candidate])
    return batches
