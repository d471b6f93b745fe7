"""Which loops are joined with innermost ones that are too short for vectors, for all columns at once.

The counterpart of `ansor.ir.passes.short_rows`.
"""

from __future__ import annotations

import numpy as np

from ansor.ir.passes.short_rows import longest_joined
from costmodel.extraction.body import COUNTS
from costmodel.extraction.columns import Bools, Columns, Ints
from costmodel.extraction.indices import Floats
from costmodel.extraction.steps import steps_along_two

_CHOICES = COUNTS.index("select_op")


def joined_loops(columns: Columns, own: Bools, inner: Ints, children: Ints, widest: Floats) -> Bools:
    """
    Find the loops that become one with the innermost.

    Parameters
    ----------
    columns
        The statements.
    own
        Loops of the stage itself that have more than one iteration.
    inner
        Number of the innermost of them, -1 without one.
    children
        How many loops are also around a stage attached to one of them.
    widest
        Elements of a vector.

    Returns
    -------
    Bools
        Shape `(loops, columns)`, the innermost loop among them; none where it stays alone.
    """
    joined = np.zeros_like(own)
    loops = np.arange(columns.loops)[:, None]
    serial = own & ~columns.parallel & ~columns.unroll
    if columns.bound is not None:
        serial &= columns.bound < 0
    others = (own & columns.vector & (loops != inner)).any(axis=0)
    pending = np.flatnonzero((inner >= np.maximum(children, 0)) & ~columns.is_reduction & ~others)
    pending = pending[serial[inner[pending], pending]]
    outer, length = inner[pending], columns.extent[inner[pending], pending]
    longest = longest_joined(widest, columns.counts[_CHOICES] > 0)
    while True:
        short = length <= longest[pending]
        pending, outer, length = pending[short], outer[short], length[short]
        outer = np.where(own[:, pending] & (loops < outer), loops, -1).max(axis=0, initial=-1)
        fits = (outer >= np.maximum(children[pending], 0)) & serial[outer, pending]
        fits &= _end_to_end(columns, pending, inner[pending], outer, length)
        fits = _agreed(columns, pending, fits)
        if not fits.any():
            return joined
        pending, outer, length = pending[fits], outer[fits], length[fits]
        joined[inner[pending], pending] = joined[outer, pending] = True
        length = length * columns.extent[outer, pending]


def _end_to_end(columns: Columns, at: Ints, inner: Ints, outer: Ints, length: Floats) -> Bools:
    """Whether iterations of `outer` store, each after the one before, `length` elements along `inner`.

    And read so whatever is not the same for all of them. Of columns `at`.
    """
    found = np.ones(len(at), np.bool_)
    for mine, short, long in steps_along_two(columns, at, inner, outer):
        along = short.last & (short.distance == 1) & (long.distance == length[mine])
        along &= ~short.bent & ~long.bent
        same = ~short.moves & ~long.moves
        found[mine] = along[0] & (along | same).all(axis=0)
    return found


def _agreed(columns: Columns, at: Ints, fits: Bools) -> Bools:
    """What all outputs of a stage are fit for: they are stored in the same loops."""
    if not (columns.outputs[at] > 1).any():
        return fits
    stages = np.stack([columns.program[at], columns.ordinal[at] - columns.output[at]])
    _, which = np.unique(stages, axis=1, return_inverse=True)
    return np.asarray(np.bincount(which, ~fits) == 0)[which]
