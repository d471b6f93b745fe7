"""Which reductions the emitter does in lanes, decided for all columns at once.

The counterpart of `ansor.ir.passes.lane_reduction`: sums, products, minima and maxima whose innermost
reduction loop, or several that lie end to end, runs along memory, whichever elements its terms count for,
where that takes fewer instructions than vectors across elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ansor.ir.passes.lane_reduction import (
    LONGEST_JOINED,
    MOST_VECTORS,
    makes_whole_vectors,
    pays,
    strided_load,
)
from ansor.ir.registers import RegisterLimits
from ansor.ir.strides import MOST_APART
from costmodel.extraction.columns import Bools, Columns, Group, Ints
from costmodel.extraction.indices import Floats
from costmodel.extraction.statements import READ
from costmodel.extraction.steps import bending, steps_along, steps_along_two


class LaneReductions(NamedTuple):
    """
    What is reduced in lanes.

    Parameters
    ----------
    lane
        Iterations of each loop that are lanes of a vector of terms, shape `(loops, columns)`: 1 elsewhere. Of
        loops that are joined the inner ones take all of theirs, and the outermost what is left, perhaps less
        than one.
    vectors
        How many vectors each element is reduced in.
    length
        Iterations of the loop that lanes run along, all those that it was joined of together.
    """

    lane: Floats
    vectors: Floats
    length: Floats


def lane_reductions(
    columns: Columns, limits: RegisterLimits, accumulators: Floats, tile: Bools, steps: Bools, last: Ints
) -> LaneReductions:
    """
    Find the lanes and the vectors of each reduction.

    Parameters
    ----------
    columns
        The statements.
    limits
        What the machine allows.
    accumulators
        Registers that hold the elements of each if its terms are taken one by one, 0 without a tile.
    tile, steps
        The loops that select elements, and those that reduce them, shape `(loops, columns)`.
    last
        Number of the innermost reduction loop, -1 without one.
    """
    width = np.maximum(np.floor_divide(limits.vector_bits, columns.lane_bits), 1.0)
    one = np.ones(len(columns))
    nothing = LaneReductions(np.ones(columns.extent.shape), one, one)
    if not columns.loops:
        return nothing
    at = np.maximum(last, 0)
    chosen = (accumulators > 0) & columns.combines_pairs & (width > 1)
    own = columns.own & columns.reduces
    chosen &= ~(own & columns.vector).any(axis=0)  # tensorized
    chosen &= np.where(own, columns.extent, 1.0).prod(axis=0) == columns.reduced
    if not chosen.any():
        return nothing
    strided = np.empty(len(columns))
    for group in columns.groups:
        here = group.columns
        strided[here] = _strided_loads(group, at[here], tile[:, here], columns.extent[:, here])
    chosen &= np.isfinite(strided)
    if not chosen.any():
        return nothing
    joined = _joined(columns, at, steps, width, chosen)
    length = np.where(joined, columns.extent, 1.0).prod(axis=0)
    chosen &= length >= width
    elements = np.where(tile, columns.extent, 1.0).prod(axis=0)
    terms = np.where(steps, columns.extent, 1.0).prod(axis=0)
    chosen &= pays(terms, elements, accumulators, width, strided)
    vectors = np.where(chosen, 2.0 ** np.floor(np.log2(np.maximum(length // width, 1.0))), 1.0)
    vectors = np.minimum(vectors, MOST_VECTORS)
    registers = limits.room
    for _ in range(MOST_VECTORS):
        total = elements * vectors
        fits = (total <= registers) & (total * columns.instructions <= limits.max_instructions)
        vectors = np.where(fits | (vectors == 1), vectors, vectors / 2)
    chosen &= fits
    inside = joined & (np.cumsum(joined, axis=0) > 1)
    lane = np.where(inside & chosen, columns.extent, 1.0)
    first = np.argmax(joined, axis=0), np.arange(len(columns))
    lane[first] = np.where(chosen, width / lane.prod(axis=0), lane[first])
    return LaneReductions(lane, np.where(chosen, vectors, 1.0), length)


def _joined(columns: Columns, inner: Ints, steps: Bools, width: Floats, chosen: Bools) -> Bools:
    """The innermost reduction loop of `chosen` columns, with those that become one loop with it."""
    loops = np.arange(columns.loops)[:, None]
    joined = (loops == inner) & chosen
    pending = np.flatnonzero(chosen)
    outer, length = inner[pending], columns.extent[inner[pending], pending]
    while True:
        outer = np.where(steps[:, pending] & (loops < outer), loops, -1).max(axis=0, initial=-1)
        fits = (outer >= 0) & ~makes_whole_vectors(length, width[pending])
        total = length * columns.extent[np.maximum(outer, 0), pending]
        fits &= total <= LONGEST_JOINED
        fits &= _continues(columns, pending, inner[pending], np.maximum(outer, 0), length)
        if not fits.any():
            return np.asarray(joined)
        pending, outer, length = pending[fits], outer[fits], total[fits]
        joined[outer, pending] = True


def _continues(columns: Columns, at: Ints, inner: Ints, outer: Ints, length: Floats) -> Bools:
    """Whether all that is read lies `length` iterations of `inner` further on in the next one of `outer`."""
    found = np.ones(len(at), np.bool_)
    for mine, near, far in steps_along_two(columns, at, inner, outer):
        even = (far.distance == length[mine] * near.distance) & ~near.bent & ~far.bent
        found[mine] = even.all(axis=0)
    return found


def _strided_loads(group: Group, loop: Ints, tile: Bools, extent: Floats) -> Floats:
    """Instructions that load what does not lie side by side along the loop of each column, per vector.

    Infinite where something lies too far apart, or nothing side by side.
    """
    used = (group.coefficients != 0).any(axis=2)  # (loops, buffers, columns)
    if group.correction is not None:
        used |= bending(group.correction).any(axis=2)
    step, moves, bent, _ = steps_along(group, loop, np.arange(len(loop)))
    moving = moves & (group.kind == READ)
    places = np.where(tile[:, None] & used, extent[:, None], 1.0).prod(axis=0) * group.count
    each = np.where(moving & (step > 1), strided_load(step) * places, 0.0)
    good = (step >= 1) & (step <= MOST_APART) & ~bent
    possible = (~moving | good).all(axis=0) & (moving & (step == 1)).any(axis=0)
    return np.where(possible, each.sum(axis=0), np.inf)
