"""Spaces so small that all their programs can be listed.

A few thousand rows are scored faster than they are searched, and a search that has seen all of them can say
that there is nothing more.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from sketches.factors import factorization_count
from sketches.family import Family, Matrix
from sketches.neighbours import Neighbourhood
from sketches.population import Population
from sketches.repair import admitted, legal_tiles
from sketches.rule import SketchContext
from sketches.tiles import enumerate_tilings

_SPELLINGS = 16
"""A program is written in so many ways at most, on average; spaces with more rows are not listed."""


def enumerate_space(neighbourhood: Neighbourhood, at_most: int) -> list[Population] | None:
    """
    List all programs of a space, some of them more than once.

    Parameters
    ----------
    neighbourhood
        The space.
    at_most
        About how many distinct programs it may have.

    Returns
    -------
    list[Population] | None
        Every family with all its rows; None if there are too many.
    """
    space, room = neighbourhood.space, at_most * _SPELLINGS
    found: list[Population] = []
    for sketch in space.sketches:
        families = neighbourhood.families(sketch, at_most)
        if families is None:
            return None
        for family in families:
            values = _all_rows(family, space.context, room)
            if values is None:
                return None
            room -= len(values)
            found.append(admitted(Population(family, values), space.context))
    return found


def _all_rows(family: Family, context: SketchContext, at_most: int) -> Matrix | None:
    """All rows of a family, wishes of annotations not yet repaired; None if there are more than `at_most`."""
    params = context.params
    limit = params.max_innermost_split_factor
    exact = (factorization_count(hole.extent, len(hole.columns), limit) for hole in family.tiles)
    if prod(exact) > at_most:
        return None  # Those lengths alone that divide are too many, which takes no list to know.
    blocks: list[Matrix] = []
    for hole in family.tiles:
        lengths = enumerate_tilings(hole.extent, len(hole.columns), limit, params.max_tile_waste, at_most)
        if lengths is None:
            return None
        blocks.append(lengths)
    blocks += [np.array(values)[:, None] for values in family.annotation_values.values()]
    if prod(map(len, blocks)) > at_most:
        return None
    rows = [[int(value) for part in choice for value in part] for choice in product(*blocks)]
    values = np.array(rows, dtype=np.int64).reshape(len(rows), len(family.columns))
    return values[legal_tiles(family, values, context)]
