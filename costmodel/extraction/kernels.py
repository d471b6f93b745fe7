"""What becomes of each statement's loops in the kernels of a GPU, decided for all columns at once.

The counterpart of what lowering to kernels does (`ansor.ir.passes.kernel_pipeline`):

- Only what is annotated becomes vectors, and nothing is done in parallel beside blocks and threads, loops
  over which are no loops of a thread's code. What a reduction adds to is in registers without more ado.
- Loops are unrolled by the pragma's limit, of which each virtual thread has its part, and where they decide
  which element of a private array is meant, if registers hold that (`ansor.ir.passes.private_arrays`); where
  that is too much code, what is unrolled inside of the latter is a loop again. Tensorized loops are written
  out; the limit counts them as one step.

What is left out: what is computed inside of the loops of a private array, whose steps count there, too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ansor.ir.passes.kernel_pipeline import THREAD_LIMITS
from ansor.ir.passes.private_arrays import MOST_STEPS
from ansor.schedule.stages import Annotation
from costmodel.extraction.columns import BOUND, Bools, Columns
from costmodel.extraction.indices import Floats
from costmodel.extraction.plan import Plan, Unroller, spread_to_attached
from costmodel.extraction.regions import last_loop
from costmodel.extraction.warps import PRIVATE

VIRTUAL: Final = BOUND.index(Annotation.VTHREAD)
"""What `Columns.bound` says of loops over virtual threads."""

_WORD: Final = 4


def kernel_plan(columns: Columns) -> Plan:
    """Decide vectors and unrolling of the statements of kernels."""
    loops = np.arange(columns.loops)[:, None]
    shape = columns.extent.shape
    own = columns.own & (columns.extent > 1)
    lane = np.where(own & columns.vector, columns.extent, 1.0)
    nothing, none = np.zeros(shape, np.bool_), np.zeros(len(columns), np.bool_)
    serial = own if columns.bound is None else own & (columns.bound < 0)
    tensorized = own & columns.tensorized
    together = np.where(tensorized, columns.extent, lane)
    unrolled = Unroller(columns, THREAD_LIMITS, serial, together, none, loops).run() | tensorized
    _add_private(columns, serial, np.ceil(columns.extent / lane), unrolled)
    spread_to_attached(columns, unrolled, loops)
    ones = np.ones(shape)
    zero, one = np.zeros(len(columns)), np.ones(len(columns))
    return Plan(lane, ones, unrolled, last_loop(own), none, nothing, nothing, zero, one, none)


def _add_private(columns: Columns, serial: Bools, strips: Floats, unrolled: Bools) -> None:
    """Add the loops over elements of private arrays that registers hold to those that are unrolled."""
    virtual = np.ones(len(columns))
    if columns.bound is not None:
        virtual = np.where(columns.bound == VIRTUAL, columns.extent, 1.0).prod(axis=0)
    wanted = _over_private(columns, virtual) & serial
    written = _written_out(wanted, virtual, strips, unrolled)
    long = (wanted & ~written).any(axis=0)
    inside = np.logical_or.accumulate(wanted, axis=0)
    rolled = long & inside & serial & ~wanted & ~columns.tensorized
    unrolled &= ~rolled
    unrolled |= np.where(long, _written_out(wanted, virtual, strips, unrolled), written)


def _written_out(wanted: Bools, virtual: Floats, strips: Floats, unrolled: Bools) -> Bools:
    """Which of the wanted loops are unrolled, beside those that are."""
    found, steps = np.zeros_like(wanted), virtual
    for loop in range(len(wanted) - 1, -1, -1):
        found[loop] = wanted[loop] & (unrolled[loop] | (steps * strips[loop] <= MOST_STEPS))
        steps = np.where(unrolled[loop] | found[loop], steps * strips[loop], steps)
    return found


def _over_private(columns: Columns, virtual: Floats) -> Bools:
    """The loops that the indices of private arrays in registers move with, shape `(loops, columns)`."""
    wanted = np.zeros(columns.extent.shape, np.bool_)
    for group in columns.groups:
        if group.warps is None:
            continue
        at = group.columns
        words = group.shape.prod(axis=1) * np.ceil(group.element_bytes / _WORD) * virtual[at]
        held = (group.warps.space == PRIVATE) & (words <= THREAD_LIMITS.room)
        used = (group.coefficients != 0).any(axis=2)
        if columns.bound is not None:  # Where threads differ in their element, it is in memory.
            launched = (columns.bound[:, at] >= 0) & (columns.bound[:, at] != VIRTUAL)
            launched &= columns.extent[:, at] > 1
            held &= ~(used & launched[:, None]).any(axis=0)
        wanted[:, at] = (used & held).any(axis=1)
    return wanted
