"""Crossover: a program with the tiles of another.

The child keeps its first parent's structure. For every axis it takes the whole tuple of tile lengths from
one parent or the other; annotations go stage by stage. What is taken over is found by name (stage, axis,
level), so the parents may be of different families, and of different sketches; an axis that the donor does
not tile alike stays as it is.

Source: named by the Ansor paper (section 5.1), left out of its code.
"""

from __future__ import annotations

import numpy as np

from search.offspring import Offspring, same_family, tiles_changed
from sketches.columns import ColumnKind
from sketches.family import Matrix
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.remap import MISSING


def crossover(
    parents: Population, donors: Matrix, neighbourhood: Neighbourhood, rng: np.random.Generator
) -> Offspring:
    """
    Make one child of every row and its donor.

    Parameters
    ----------
    parents
        Rows that give the structure.
    donors
        The other parents' integers for the columns of this family (`Names.gather`), one row each.
    neighbourhood
        The space, whose limits the children keep.
    rng
        Decides axis by axis, stage by stage.

    Returns
    -------
    Offspring
        Children that differ from their first parent; the others are invalid.
    """
    family, count = parents.family, len(parents)
    values = parents.values.copy()
    if not len(family.columns):
        return same_family(parents, values, np.zeros(count, dtype=np.bool_))
    groups = [range(hole.start, hole.stop) for hole in family.holes]
    first = groups[-1].stop if groups else 0
    groups += [range(at, at + 1) for at in range(first, len(family.columns))]
    taken = rng.random((count, len(groups))) < 0.5
    for which, columns in enumerate(groups):
        theirs = donors[:, columns.start : columns.stop]
        take = taken[:, which] & (theirs != MISSING).all(axis=1)
        values[take, columns.start : columns.stop] = theirs[take]
    if not len(family.positions(ColumnKind.TILE)):
        return same_family(parents, values, (values != parents.values).any(axis=1))
    return tiles_changed(parents, values, neighbourhood)
