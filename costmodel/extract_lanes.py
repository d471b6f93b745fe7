"""Which reductions the emitter does in lanes, decided for all columns at once.

The counterpart of `ansor.ir.passes.lane_reduction`: sums, products, minima and maxima whose innermost
reduction loop runs along memory and has no guard, where that takes fewer instructions than vectors across
elements.
"""

from __future__ import annotations

import numpy as np

from ansor.ir.passes.lane_reduction import MOST_VECTORS, pays, strided_load
from ansor.ir.passes.register_tile import RegisterLimits
from ansor.ir.strides import MOST_APART
from costmodel.extract_columns import Bools, Columns, Group, Ints
from costmodel.extract_indices import Floats
from costmodel.extract_statements import READ
from costmodel.extract_steps import bending, steps_along


def lane_reductions(
    columns: Columns, limits: RegisterLimits, accumulators: Floats, tile: Bools, steps: Bools, last: Ints
) -> tuple[Floats, Floats]:
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

    Returns
    -------
    tuple[Floats, Floats]
        Lanes along that loop, 1 where it stays scalar; and how many vectors each element is reduced in.
    """
    width = np.maximum(np.floor_divide(limits.vector_bits, columns.store_bits), 1.0)
    one = np.ones(len(columns))
    if not columns.loops:
        return one, one
    at = np.maximum(last, 0)
    extent = columns.extent[at, np.arange(len(columns))]
    chosen = (accumulators > 0) & columns.combines_pairs & (width > 1) & (extent >= width)
    own = columns.own & columns.reduces
    chosen &= ~(own & columns.vector).any(axis=0)  # tensorized
    chosen &= np.where(own, columns.extent, 1.0).prod(axis=0) == columns.reduced
    if not chosen.any():
        return one, one
    strided = np.empty(len(columns))
    for group in columns.groups:
        here = group.columns
        strided[here] = _strided_loads(group, at[here], tile[:, here], columns.extent[:, here])
    elements = np.where(tile, columns.extent, 1.0).prod(axis=0)
    terms = np.where(steps, columns.extent, 1.0).prod(axis=0)
    chosen &= pays(terms, elements, accumulators, width, strided)
    vectors = np.where(chosen, 2.0 ** np.floor(np.log2(np.maximum(extent // width, 1.0))), 1.0)
    vectors = np.minimum(vectors, MOST_VECTORS)
    registers = limits.room
    for _ in range(MOST_VECTORS):
        total = elements * vectors
        fits = (total <= registers) & (total * columns.instructions <= limits.max_instructions)
        vectors = np.where(fits | (vectors == 1), vectors, vectors / 2)
    chosen &= fits
    return np.where(chosen, width, 1.0), np.where(chosen, vectors, 1.0)


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
