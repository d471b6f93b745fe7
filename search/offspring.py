"""Children of programs: rows of a family, each knowing its parent.

What a change asks of annotations is settled afterwards (`sketches.repair`), so a child may leave a column as
`DERIVE`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketches.annotate import DERIVE
from sketches.columns import ColumnKind
from sketches.family import Matrix
from sketches.locations import Rows
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.repair import clip_tiles, legal_tiles

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Offspring:
    """
    What became of the rows of one population.

    Parameters
    ----------
    populations
        The children, their annotations not yet repaired.
    parents
        For each population, the parent's row of each child.
    valid
        Which parents have a child, shape `(parents,)`.
    """

    populations: tuple[Population, ...]
    parents: tuple[Rows, ...]
    valid: Mask

    @property
    def invalid(self) -> int:
        """Parents that could not be changed."""
        return int(len(self.valid) - self.valid.sum())


def same_family(parents: Population, values: Matrix, valid: Mask) -> Offspring:
    """Wrap children that stay in their parents' family, `values` holding one for every parent."""
    rows = np.flatnonzero(valid)
    return Offspring((Population(parents.family, values[rows]),), (rows,), valid)


def tiles_changed(parents: Population, values: Matrix, neighbourhood: Neighbourhood) -> Offspring:
    """
    Wrap children with other tile lengths: clip them, drop illegal and unchanged ones.

    A stage that is not vectorised in the parent may become so: its extents may have kept it from it.
    """
    family = parents.family
    legal = legal_tiles(family, values, neighbourhood.space.context)
    clipped = np.where(legal[:, None], values, parents.values)
    clipped = clip_tiles(family, clipped)
    legal &= (clipped != parents.values).any(axis=1)
    vectors = list(family.positions(ColumnKind.VECTORIZE))
    clipped[:, vectors] = np.where(clipped[:, vectors] == 0, DERIVE, clipped[:, vectors])
    return same_family(parents, clipped, legal)
