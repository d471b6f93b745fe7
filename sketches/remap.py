"""Carrying integers from one family to another by name.

A decision keeps its name (stage, axis, level) from family to family, so a row is carried over by looking its
names up; step numbers play no part. A tile also keeps its name where a sketch moved the computation into a
cache stage or made partial results of it: `C.local` is tiled as `C` would be.

All names of a search are numbered in one `Names`, and rows of any families spread out over these numbers make
one matrix, from which every family gathers what it knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ansor.schedule.stages import Stage
from sketches.columns import Column, ColumnKind
from sketches.family import Family, Matrix
from sketches.population import Population

MISSING: Final = -2
"""Stands for an integer that a row does not have."""


_CACHED: Final = ".local"
_PARTS: Final = re.compile(r"([@.#])")


@lru_cache(maxsize=4096)
def shared_names(family: Family) -> tuple[Column, ...]:
    """
    Return the names under which the columns are known to other families, in order.

    Tiles of a computation that was moved into a cache stage have those of the stage that it came from: its
    axes are that stage's in order, whatever they are called. One that is kept in pieces has other axes, and
    nothing in common with it.
    """
    stages = {stage.name: stage for stage in family.sketch.state.stages}
    shared: list[Column] = []
    for column in family.columns:
        original = stages.get(column.stage.removesuffix(_CACHED))
        is_cached = column.kind is ColumnKind.TILE and column.stage.endswith(_CACHED)
        if is_cached and original is not None and _has_axes_of(stages[column.stage], original):
            pairs = zip(stages[column.stage].compute.axis, original.compute.axis, strict=True)
            names = {own.name: theirs.name for own, theirs in pairs}
            parts = _PARTS.split(column.axis)
            axis = "".join(names.get(part, part) for part in parts)
            shared.append(replace(column, stage=original.name, axis=axis))
        else:
            shared.append(column)
    return tuple(shared)


def _has_axes_of(cached: Stage, original: Stage) -> bool:
    return len(cached.compute.axis) == len(original.compute.axis)


@dataclass(eq=False)
class Names:
    """Numbers for the names of columns, given in the order in which families turn up."""

    _numbers: dict[Column, int] = field(default_factory=dict)
    _of_family: dict[Family, NDArray[np.int64]] = field(default_factory=dict)

    def of(self, family: Family) -> NDArray[np.int64]:
        """Numbers of a family's columns, shape `(columns,)`."""
        known = self._of_family.get(family)
        if known is None:
            numbers = self._numbers
            known = np.array([numbers.setdefault(n, len(numbers)) for n in shared_names(family)], np.int64)
            self._of_family[family] = known
        return known

    def spread(self, populations: Sequence[Population]) -> Matrix:
        """Write all rows below each other, one column per name, `MISSING` where a row has none."""
        places = [self.of(population.family) for population in populations]
        matrix = np.full((sum(map(len, populations)), len(self._numbers)), MISSING, dtype=np.int64)
        start = 0
        for population, columns in zip(populations, places, strict=True):
            matrix[start : start + len(population), columns] = population.values
            start += len(population)
        return matrix

    def gather(self, matrix: Matrix, family: Family) -> Matrix:
        """Read a family's columns out of such rows; `MISSING` where they have no such name."""
        columns = self.of(family)
        if matrix.shape[1] <= columns.max(initial=-1):
            wider = np.full((len(matrix), len(self._numbers)), MISSING, dtype=np.int64)
            wider[:, : matrix.shape[1]] = matrix
            matrix = wider
        return matrix[:, columns]
