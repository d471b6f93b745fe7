"""Making changed programs legal again: what annotations may be depends on tile lengths.

Whoever changes columns (a mutation, a crossover, a move to another family) writes what it wants and leaves it
to `repaired` to see what the extents allow: parallel loops stay outermost and never nest, vectors stay within
their size. Tiles themselves are not repaired: `legal_tiles` says which rows have lengths that the space
allows. `admitted` leaves out what the hardware could not run.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from sketches.annotate import DERIVE, Values, parallel_widths
from sketches.annotators import Draft
from sketches.columns import ColumnKind
from sketches.family import Family, Matrix
from sketches.launch import launchable
from sketches.limits import runnable
from sketches.population import Population
from sketches.rule import SketchContext
from sketches.tiles import clip_lengths, tile_waste

_DERIVED_UNROLL = 16


def legal_tiles(family: Family, values: Matrix, context: SketchContext) -> NDArray[np.bool_]:
    """Whether the lengths of each row are positive, within the innermost limit and not too wasteful.

    On a GPU, blocks must have an allowed number of threads as well.
    """
    legal: NDArray[np.bool_] = np.asarray((values[:, : family.filling] >= 1).all(axis=1))
    for hole in family.tiles:
        legal &= values[:, hole.stop - 1] <= context.params.max_innermost_split_factor
    legal[legal] = tile_waste(family.tiles, values[legal]) <= context.params.max_tile_waste
    legal[legal] = launchable(family.sketch.launches, values[legal], context.hardware)
    return legal


def clip_tiles(family: Family, values: Matrix) -> Matrix:
    """Return the rows with clipped lengths (`tiles.clip_lengths`)."""
    clipped = values.copy()
    for hole in family.tiles:
        clipped[:, hole.start : hole.stop] = clip_lengths(hole.extent, values[:, hole.start : hole.stop])
    return clipped


def repaired(population: Population, context: SketchContext) -> Population:
    """
    Make the annotation columns fit the tiles.

    Parameters
    ----------
    population
        Rows with legal tiles; annotation columns hold what is wanted, or `DERIVE`.
    context
        Hardware and parameters.

    Returns
    -------
    Population
        The same number of rows; its bounds are known already.
    """
    family, rows = population.family, np.arange(len(population))
    draft = Draft(context, family, population.inferred, rows, population.values.copy())
    wanted = [draft.values[:, at].copy() for at in family.positions(ColumnKind.PARALLEL)]
    cores = context.hardware.num_cores
    widths = parallel_widths(draft.bounded, family.parallel, rows, cores, wanted)
    at_parallel = family.positions(ColumnKind.PARALLEL)
    if any(at in family.choices for at in at_parallel):
        wanted = [nearest_choice(family, at, width) for at, width in zip(at_parallel, widths, strict=True)]
        widths = parallel_widths(draft.bounded, family.parallel, rows, cores, wanted)
    draft.set_parallel(widths)
    for at in family.positions(ColumnKind.UNROLL):
        column = draft.values[:, at]
        draft.values[:, at] = nearest_choice(family, at, np.where(column == DERIVE, _DERIVED_UNROLL, column))
    at_vectors = family.positions(ColumnKind.VECTORIZE)
    for at, most in zip(at_vectors, draft.vector_limits(), strict=True):
        column = draft.values[:, at]
        legal = np.where(column == DERIVE, np.minimum(most, 1), np.minimum(column, most))
        draft.values[:, at] = nearest_choice(family, at, legal, most)
    for at in family.positions(ColumnKind.STREAM):
        draft.values[:, at] = nearest_choice(family, at, np.clip(draft.values[:, at], 0, 1))
    for at in (*family.positions(ColumnKind.THREADS), *family.positions(ColumnKind.PARTS)):
        draft.values[:, at] = nearest_choice(family, at, draft.values[:, at])
    for lead, at in zip(family.leads, family.positions(ColumnKind.LEAD), strict=True):
        wished = nearest_choice(family, at, np.maximum(draft.values[:, at], 0))
        draft.values[:, at] = lead.settled(draft.inferred, wished)
    for site, at in zip(family.pads, family.positions(ColumnKind.PAD), strict=True):
        wished = nearest_choice(family, at, np.maximum(draft.values[:, at], 0))
        draft.values[:, at] = site.settled(draft.inferred, wished)
    for limit in draft.fetch_limits():
        legal = limit.settled(draft.values[:, limit.column])
        chosen = nearest_choice(family, limit.column, legal, limit.longest)
        draft.values[:, limit.column] = limit.settled(chosen)
    return population.reannotated(draft.values)


def admitted(
    population: Population, context: SketchContext, refused: Counter[str] | None = None
) -> Population:
    """Return the repaired rows that the hardware can run; `refused` counts the others, by reason."""
    settled = repaired(population, context)
    kept = runnable(settled, context, refused)
    return settled if len(kept) == len(settled) else settled.take(kept)


def nearest_choice(family: Family, at: int, column: Values, most: Values | None = None) -> Values:
    """
    Move the integers of a column to the nearest values that an annotator allows, if one says so.

    Parameters
    ----------
    family, at
        The column, by position.
    column
        Legal integers, shape `(rows,)`.
    most
        Highest legal integer of each row; where all choices exceed it, it is the answer. Default: any.
    """
    if at not in family.choices:
        return column
    choices = np.array(family.choices[at])
    distance = np.abs(column[:, None] - choices).astype(np.float64)
    if most is None:
        return np.asarray(choices[distance.argmin(axis=1)])
    distance[choices > most[:, None]] = np.inf
    return np.where(np.isinf(distance).all(axis=1), most, choices[distance.argmin(axis=1)])
