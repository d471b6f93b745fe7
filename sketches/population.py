"""Populations: many programs of one family as rows of integers.

Everything that happens to many programs at once happens here, on whole columns. A single program exists as
an object only once `materialize` is asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ansor.errors import DefinitionError
from ansor.schedule.bounds import Bounds, infer_bounds
from ansor.schedule.state import State
from ansor.schedule.steps import Step
from sketches.buffering import filled_ahead
from sketches.columns import Column, ColumnKind
from sketches.family import Family, Matrix
from sketches.locations import Rows
from sketches.padding import padded


@dataclass(frozen=True, eq=False)
class Population:
    """`values[r, c]` is the integer of program `r` for the family's column `c`."""

    family: Family
    values: Matrix

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.family.columns):
            raise DefinitionError(
                f"a population of a family with {len(self.family.columns)} columns needs a matrix with as "
                f"many, found shape {self.values.shape}"
            )

    def __len__(self) -> int:
        return len(self.values)

    def column(self, name: Column) -> NDArray[np.int64]:
        """All programs' integers of one name; KeyError if the family has no such column."""
        return self.values[:, self.family.index[name]]

    def take(self, rows: Rows | Sequence[int]) -> Population:
        """Return the population of some rows, in the order given; bounds known here hold for them."""
        chosen = np.asarray(rows, dtype=np.int64)
        taken = Population(self.family, self.values[chosen])
        if "inferred" in self.__dict__:
            return taken.within(self.inferred, chosen)
        if self._taken is not None:
            bounds, own = self._taken
            return taken.within(bounds, own[chosen])
        return taken

    def within(self, bounds: Bounds, rows: Rows) -> Population:
        """Return the population, whose bounds are those of some rows of a larger one of its structure."""
        known = Population(self.family, self.values)
        if self.family.frame is not None:
            known.__dict__["_taken"] = bounds, rows
        return known

    def reannotated(self, values: Matrix) -> Population:
        """Return the population with other annotations; bounds known here hold if lengths are the same."""
        changed, first = Population(self.family, values), slice(self.family.filling)
        if np.array_equal(values[:, first], self.values[:, first]):
            changed.__dict__.update({k: v for k, v in self.__dict__.items() if k in ("inferred", "_taken")})
        return changed

    @cached_property
    def _taken(self) -> tuple[Bounds, Rows] | None:
        """Bounds of a population that these rows were taken from, and which rows; None if none are known."""
        return None

    def unique_rows(self) -> Rows:
        """Positions of the first of each set of equal rows, ascending."""
        _, first = np.unique(self.values, axis=0, return_index=True)
        return np.sort(first)

    @cached_property
    def inferred(self) -> Bounds:
        """The family's structure with its bounds, every extent a column, before annotation.

        Raises
        ------
        ScheduleError
            If the structure is illegal.
        """
        known = None if self._taken is None else self._taken[0].take(self._taken[1])
        return infer_bounds(self.family.filled(self.values)) if known is None else known

    def stored(self, bounds: Bounds) -> Bounds:
        """The structure's bounds with how copies are kept, padded and more than once, as columns."""
        family = self.family
        pads = [self.values[:, at] for at in family.positions(ColumnKind.PAD)]
        leads = [self.values[:, at] for at in family.positions(ColumnKind.LEAD)]
        return filled_ahead(padded(bounds, family.pads, pads), family.leads, leads)

    @property
    def bounds(self) -> State:
        """The structure of `inferred`."""
        return self.inferred.state

    def steps(self, row: int) -> tuple[Step, ...]:
        """One program's transform steps (`Family.program`), splits with the extents of what they split."""
        extents: dict[int, int] = {}
        for hole in self.family.sketch.spelled_holes:
            if not hole.extent:
                stage, loop = hole.loop
                extent = np.broadcast_to(self.inferred.stages[stage].extents[loop], len(self))  # type: ignore[arg-type]
                extents[hole.step] = int(extent[row])
        return self.family.program(self.values[row].tolist(), extents)

    def materialize(self, row: int) -> State:
        """Build one program: the state that its steps lead to, bounds not yet inferred.

        Raises
        ------
        ScheduleError
            If a step is illegal; rows that sampling made never raise.
        """
        return State.replay(self.family.dag, self.steps(row))
