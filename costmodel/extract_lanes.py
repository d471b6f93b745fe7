"""Which reductions the emitter does in lanes, decided for all columns at once.

The counterpart of `ansor.ir.passes.lane_reduction`: sums, products, minima and maxima whose innermost
reduction loop runs along memory, has no guard, and has no vector loop inside.
"""

from __future__ import annotations

import numpy as np

from ansor.ir.passes.lane_reduction import MOST_VECTORS
from ansor.ir.passes.register_tile import RegisterLimits
from costmodel.extract_body import COUNTS
from costmodel.extract_columns import Bools, Columns, Group, Ints
from costmodel.extract_indices import Floats
from costmodel.extract_statements import READ

_NODES = COUNTS.index("nodes")


def lane_reductions(
    columns: Columns, limits: RegisterLimits, promoted: Bools, needed: Floats, lanes: Floats, last: Ints
) -> tuple[Floats, Floats]:
    """
    Find the lanes and the vectors of each reduction.

    Parameters
    ----------
    columns
        The statements.
    limits
        What the machine allows.
    promoted, needed, lanes
        Whether each keeps its elements in registers, in how many, and lanes of the loops that select them.
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
    chosen = promoted & columns.combines_pairs & (lanes == 1) & (width > 1) & (extent >= width)
    own = columns.own & columns.reduces
    chosen &= np.where(own, columns.extent, 1.0).prod(axis=0) == columns.reduced
    if not chosen.any():
        return one, one
    for group in columns.groups:
        chosen[group.columns] &= _along_memory(group, at[group.columns])
    vectors = np.where(chosen, 2.0 ** np.floor(np.log2(np.maximum(extent // width, 1.0))), 1.0)
    vectors = np.minimum(vectors, MOST_VECTORS)
    registers = limits.num_registers - limits.reserved
    for _ in range(MOST_VECTORS):
        total = needed * vectors
        fits = (total <= registers) & (total * columns.counts[_NODES] <= limits.max_instructions)
        vectors = np.where(fits | (vectors == 1), vectors, vectors / 2)
    return np.where(chosen, width, 1.0), vectors


def _along_memory(group: Group, loop: Ints) -> Bools:
    """Whether all that is read with the loop of each column lies next to each other, and something does."""
    here = np.arange(len(loop))
    coefficients = group.coefficients[loop, :, :, here]  # (columns, buffers, dimensions)
    inexact = np.zeros(coefficients.shape, np.bool_)
    if group.correction is not None:
        inexact = group.correction[loop, :, :, here] != 0
    step = np.ones(group.shape.shape)
    for dimension in range(group.shape.shape[1] - 2, -1, -1):
        step[:, dimension] = step[:, dimension + 1] * group.shape[:, dimension + 1]
    flat = (coefficients * np.moveaxis(step, 2, 0)).sum(axis=2)
    moving = (coefficients != 0).any(axis=2) | inexact.any(axis=2)
    read = (group.kind == READ).T
    good = (flat == 1) & ~inexact.any(axis=2)
    return np.asarray((~(read & moving) | good).all(axis=1) & (read & moving).any(axis=1))
