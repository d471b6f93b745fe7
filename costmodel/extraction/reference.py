"""TVM's part of the feature table, for columns (`features.reference` says what each one is)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from costmodel.extraction.body import COUNTS
from costmodel.extraction.columns import BOUND, Bools, Columns
from costmodel.extraction.indices import Floats
from costmodel.extraction.plan import Plan, strips_of
from costmodel.extraction.regions import Regions, last_loop, reuse_of
from costmodel.extraction.statements import READ, READ_WRITE, WRITE
from costmodel.features.reference import BUFFER_COLUMNS, N_BUFFERS, N_CURVE

_OPERATIONS: Final = COUNTS.index("select_op") + 1
_FLOATS: Final = slice(COUNTS.index("float_addsub"), COUNTS.index("float_otherfunc"))
_INTS: Final = slice(COUNTS.index("int_addsub"), COUNTS.index("int_otherfunc"))


def reference_rows(columns: Columns, plan: Plan, regions: Regions, line: int, out: Floats) -> None:
    """Write TVM's features, unscaled, into `out`, shape `(164, columns of the regions)`."""
    at = regions.at
    out[:] = 0.0
    counts, points = columns.counts[:, at], regions.points[0]
    out[:_OPERATIONS] = counts[:_OPERATIONS] * points
    next_row = _OPERATIONS
    for loops, length, fused in _annotated(columns, plan, at):
        _loop_rows(columns, at, loops, length, fused, out[next_row : next_row + 11])
        next_row += 11
    _grid_rows(columns, at, out[next_row : next_row + 8])
    next_row += 8
    size = len(BUFFER_COLUMNS)
    _buffer_rows(regions, line, out[next_row : next_row + N_BUFFERS * size].reshape(N_BUFFERS, size, -1))
    next_row += N_BUFFERS * size
    _curve_rows(counts, regions, out[next_row : next_row + N_CURVE])
    next_row += N_CURVE
    _allocation_rows(columns, regions, out[next_row : next_row + 4])
    out[next_row + 4] = points
    real = regions.extent > 1
    lanes = columns.vector & ~columns.reduces  # a tensorized loop is fused with none
    together = [columns.parallel[:, at], lanes[:, at], *_bound_together(columns, at)]
    out[next_row + 5] = real.sum(axis=0) - sum(_saved(marked & real, real) for marked in together)
    out[next_row + 6] = columns.limit[at]


def _bound_together(columns: Columns, at: slice) -> Iterator[Bools]:
    """The loops of each stage, and those around it, that are bound to one index of a GPU's grid."""
    if columns.bound is None:
        return
    bound, own = columns.bound[:, at], columns.own[:, at]
    for which in range(len(BOUND)):
        yield (bound == which) & own
        yield (bound == which) & ~own


def _annotated(columns: Columns, plan: Plan, at: slice) -> list[tuple[Bools, Floats, bool]]:
    """Vector, unrolled and parallel loops, their lengths, and whether neighbours are fused to one loop."""
    extent, lane = columns.extent[:, at], plan.lane[:, at]
    real = extent > 1
    strips = strips_of(extent, lane)
    return [
        ((lane > 1) & real, lane, True),
        (plan.unrolled[:, at] & (strips > 1), strips, False),
        (plan.chunks[:, at] > 1, plan.chunks[:, at], True),
    ]


def _saved(marked: Bools, real: Bools) -> Floats:
    """How many loops there are fewer because neighbours among `marked` are fused."""
    number: Floats = marked.sum(axis=0).astype(np.float64)
    several = np.flatnonzero(number > 1)
    saved = np.zeros(len(number))
    if len(several):
        runs, _ = _fused(marked[:, several], real[:, several], np.ones((len(marked), len(several))))
        saved[several] = number[several] - runs
    return saved


def _loop_rows(columns: Columns, at: slice, chosen: Bools, length: Floats, fused: bool, out: Floats) -> None:
    """Number, product, length of the innermost, and its position."""
    any_chosen = chosen.any(axis=0)
    number = chosen.sum(axis=0).astype(np.float64)
    out[0] = number
    out[1] = np.where(any_chosen, np.where(chosen, length, 1.0).prod(axis=0), 0.0)
    last = last_loop(chosen)
    real, reduces = columns.extent[:, at] > 1, columns.reduces[:, at]
    if len(length):
        out[2] = np.where(any_chosen, length[np.maximum(last, 0), np.arange(chosen.shape[1])], 0.0)
    several = np.flatnonzero(number > 1) if fused else ()
    if len(several):
        found = _fused(chosen[:, several], real[:, several], length[:, several])
        out[0, several], out[2, several] = found
    numbers = np.arange(len(real))[:, None]
    out[3] = ~any_chosen
    mixed = (chosen & reduces).any(axis=0) & (chosen & ~reduces).any(axis=0)
    out[10] = mixed
    for first, kind in ((4, ~reduces), (7, reduces)):
        same = real & kind
        mine = any_chosen & ~mixed & (chosen & kind).any(axis=0)
        inner = mine & ~(same & (numbers > last)).any(axis=0)
        outer = mine & ~inner & ~(same & (numbers < last)).any(axis=0)
        out[first] = inner
        out[first + 1] = mine & ~inner & ~outer
        out[first + 2] = outer


def _fused(chosen: Bools, real: Bools, length: Floats) -> tuple[Floats, Floats]:
    """How many runs of neighbours there are, and the product of the innermost run."""
    width = chosen.shape[1]
    runs, product = np.zeros(width), np.zeros(width)
    inside = np.zeros(width, np.bool_)
    for loop in range(len(chosen) - 1, -1, -1):
        starts = chosen[loop] & ~inside
        runs += starts
        first = runs == 1
        product = np.where(
            chosen[loop] & first, np.where(starts, length[loop], product * length[loop]), product
        )
        inside = np.where(real[loop], chosen[loop], inside)
    return runs, product


def _grid_rows(columns: Columns, at: slice, out: Floats) -> None:
    out[0], out[1:] = 0.0, 1.0
    if columns.bound is None:
        return
    out[0] = (columns.bound[:, at] >= 0).any(axis=0)
    bound, own, extent = columns.bound[:, at], columns.own[:, at], columns.extent[:, at]
    for which in range(len(BOUND)):  # a stage may bind an index again that is bound around it
        inside, outside = (np.where((bound == which) & of, extent, 1.0).prod(axis=0) for of in (own, ~own))
        out[1 + which] = np.maximum(inside, outside)


def _buffer_rows(regions: Regions, line: int, out: Floats) -> None:
    """The 18 columns of each of the busiest buffers; `out` has shape `(5, 18, columns)`."""
    buffers, width = regions.kind.shape
    points = regions.points[0]
    size = regions.element_bytes
    rows = np.empty((len(BUFFER_COLUMNS), buffers, width))
    for row, kind in enumerate((READ, WRITE, READ_WRITE)):
        rows[row] = regions.kind == kind
    rows[3] = points * size * regions.count
    rows[4] = regions.elements[0] * size
    here = np.arange(width)
    last_used = regions.last_used
    which = np.arange(buffers)[:, None]
    if len(regions.extent):
        step = np.abs(regions.flat[np.maximum(last_used, 0), which, here])
        step = np.where(last_used >= 0, step, 0.0)
        in_indices = np.where(regions.used, regions.extent[:, None], 1.0).prod(axis=0)
        inner = last_loop(regions.extent > 1)
        stride = np.where(inner >= 0, np.abs(regions.flat[np.maximum(inner, 0), which, here]), 0.0)
    else:
        step, in_indices, stride = (
            np.zeros((buffers, width)),
            np.ones((buffers, width)),
            np.zeros((buffers, width)),
        )
    rows[5] = np.maximum(in_indices * np.minimum(1.0, step * size / line), 1.0)
    run = np.minimum(regions.run[0] * size, line)
    rows[6] = np.maximum(rows[4] / run, 1.0)
    reuse = reuse_of(regions)
    rows[7], rows[8] = reuse.repeated, reuse.serial
    rows[9] = ~(reuse.repeated | reuse.serial)
    rows[10], rows[11], rows[12] = reuse.points, reuse.bytes, reuse.count
    divisor = np.where(reuse.count > 0, reuse.count, 0.5)
    rows[13:17] = rows[3:7] / divisor
    rows[17] = stride
    order = np.lexsort((-rows[3], -rows[5]), axis=0)[:N_BUFFERS]
    out[: len(order)] = rows[:, order, here].transpose(1, 0, 2)


def _curve_rows(counts: Floats, regions: Regions, out: Floats) -> None:
    """Operations per byte at the level that reaches each tenth of all operations, between levels linear."""
    operations = counts[_FLOATS].sum(axis=0)
    operations = np.where(operations > 0, operations, counts[_INTS].sum(axis=0))
    touched = (regions.elements * regions.element_bytes).sum(axis=1)[::-1]  # from one point outwards
    done = operations * regions.points[::-1]
    intensity = done / touched
    total = done[-1]
    here = np.arange(len(total))
    for sample in range(N_CURVE):
        target = total * ((sample + 1) / N_CURVE)
        after = np.minimum((done < target).sum(axis=0), len(done) - 1)
        before = np.maximum(after - 1, 0)
        low, high = done[before, here], done[after, here]
        gap = np.where(high > low, high - low, 1.0)
        part = np.where(high > low, (target - low) / gap, 1.0)
        start = intensity[before, here]
        out[sample] = np.where(total > 0, start + part * (intensity[after, here] - start), 0.0)


def _allocation_rows(columns: Columns, regions: Regions, out: Floats) -> None:
    """Scratch lives in the body of the innermost parallel loop around its stage, else around everything."""
    at = regions.at
    scratch = columns.is_scratch[at]
    extent = regions.extent
    loops = len(extent)
    numbers = np.arange(loops)[:, None]
    held = columns.parallel[:, at] & (extent > 1)
    if columns.bound is not None:
        held = held | ((columns.bound[:, at] >= 0) & (extent > 1))
    home = last_loop(held & (numbers < columns.depth[at]))
    outside = np.where(numbers <= home, extent, 1.0).prod(axis=0) if loops else np.ones(len(scratch))
    elements = regions.stored
    out[0] = np.where(scratch, elements * regions.element_bytes[0], 0.0)
    out[1] = np.where(scratch, elements * outside, 0.0)
    out[2] = np.where(scratch, outside, 0.0)
    out[3] = np.where(scratch, regions.points[0] / outside, 0.0)
