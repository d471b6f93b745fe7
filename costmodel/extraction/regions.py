"""Regions, strides and reuse of accesses, closed-form over columns.

For each buffer and each loop level, the region that a body touches is a box: in every dimension the sum over
the loops inside of |coefficient| x (extent - 1), plus 1, cut to the buffer; an index that depends on data
reaches as many elements as it is computed times, none of them neighbours. Everything else follows from boxes
and strides. Level `l` is the body of loop `l - 1`: loops `l` and on run in it; level 0 is the whole
statement, the last level one point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.extraction.columns import Bools, Columns, Group, Ints
from costmodel.extraction.indices import Floats
from costmodel.extraction.steps import strides_of


@dataclass(slots=True, eq=False)
class Regions:
    """
    What the accesses of some columns of one group touch.

    Parameters
    ----------
    at
        Which columns.
    extent
        Of loops, shape `(loops, columns)`.
    points
        Iterations of loops `l` and on, shape `(loops + 1, columns)`.
    flat
        Distance in memory when a loop advances, shape `(loops, buffers, columns)` [elements].
    used
        Which loops an access depends on, same shape.
    divided
        Which go up by a part of a number in an index, as quotients do, shape `(loops, buffers, dimensions,
        columns)`; None if none does.
    elements
        Size of the region at each level, shape `(loops + 1, buffers, columns)`.
    run
        Contiguous elements of it, same shape.
    element_bytes, count, kind, shared, behind_line, flips, scattered
        As of the group.
    box
        Extents of the regions, shape `(loops + 1, buffers, dimensions, columns)`.
    strides
        Distance in memory of neighbours in each dimension, shape `(buffers, dimensions, columns)` [elements].
    stored
        Elements of the stored buffer, shape `(columns,)`.
    last_used
        The innermost loop that each access depends on, -1 for none, shape `(buffers, columns)`.
    """

    at: slice
    extent: Floats
    points: Floats
    flat: Floats
    used: Bools
    divided: Bools | None
    elements: Floats
    run: Floats
    element_bytes: Floats
    count: Floats
    kind: Ints
    shared: Ints
    behind_line: Ints
    flips: Bools
    scattered: Bools
    box: Floats
    strides: Floats
    stored: Floats
    last_used: Ints

    def depth_of_sets(self, line: int, way: int) -> Floats:
        """How many lines of a region share a set of a cache, at each level.

        A cache with ways of `way` bytes puts addresses that differ by a multiple of it into one set. Pieces
        whose distance shares a large power of two with that fall into few sets, and the rest of the cache is
        of no use to them. Neighbours that are closer than a line share lines.
        """
        size = self.element_bytes
        ranks = self.box.shape[2]
        if not ranks:
            return np.ones_like(self.elements)
        row = self.box[:, :, ranks - 1] * (size / line)
        np.maximum(np.ceil(row, out=row), 1.0, out=row)
        usable, crowded = row.copy(), np.ones_like(row)
        for rank in range(ranks - 1):
            width, (apart, close) = self.box[:, :, rank], self._neighbours(rank, line)
            if close.any():
                width = np.where(close, np.maximum(np.ceil(width * (apart / line)), 1.0), width)
            distance = apart.astype(np.int64)
            divisor = np.minimum(distance & -distance, way)  # the greatest common one
            places = (way / divisor).astype(np.float32)
            taken = np.minimum(width, places)
            usable *= taken
            if (taken < width).any():
                crowded *= width / taken
        crowded *= np.maximum(usable * (1.0 / max(way // line, 1)), 1.0)
        return crowded

    def lines(self, line: int) -> Floats:
        """Cache lines of the regions, `line` bytes each; at least one."""
        limit = np.maximum(line / self.element_bytes, 1.0)
        made = np.minimum(self.run, limit)
        made *= self._runs_per_line(line)
        np.divide(self.elements, made, out=made)
        return np.maximum(made, 1.0, out=made)

    def pieces(self, line: int) -> Floats:
        """Contiguous runs of the regions; those that are in one line of `line` bytes count as one."""
        return np.asarray(self.elements / self.run / self._runs_per_line(line))

    def _runs_per_line(self, line: int) -> Floats:
        """How many contiguous runs are in one line, as one channel of a few of neighbouring pixels is.

        Of all regions' shape, or a single 1.
        """
        made = np.ones(1, np.float32)
        for rank in range(self.box.shape[2] - 1):
            apart, close = self._neighbours(rank, line)
            if close.any():
                outside = close & (self.run <= self.strides[:, rank])  # in no run
                sharing = np.clip(line / apart, 1.0, self.box[:, :, rank])
                made = made * np.where(outside, sharing, 1.0).astype(np.float32)
        return made

    def _neighbours(self, rank: int, line: int) -> tuple[Floats, Bools]:
        """How far apart neighbours lie in a dimension [bytes], and where they are closer than a line.

        What depends on data has no neighbours.
        """
        apart = self.strides[:, rank] * self.element_bytes
        return apart, (apart < line) & ~self.scattered[:, rank]


def regions_of(columns: Columns, group: Group, part: slice) -> Regions:
    """Evaluate the regions of a part of a group's columns."""
    at = slice(group.columns.start + part.start, group.columns.start + part.stop)
    extent = columns.extent[:, at]
    coefficients = group.coefficients[..., part]
    loops, buffers, ranks, width = coefficients.shape
    exact = group.correction is None  # else large numbers may come off larger ones
    box = np.empty((loops + 1, buffers, ranks, width), np.float32 if exact else np.float64)
    np.add(group.spread[..., part], 1.0, out=box[loops])
    if loops:
        np.abs(coefficients, out=box[:loops])
        box[:loops] *= (extent - 1.0).astype(box.dtype)[:, None, None]
    for loop in range(loops - 1, -1, -1):
        box[loop] += box[loop + 1]
    if group.correction is not None:
        box[:loops] += group.correction[..., part]
    shape = group.shape[..., part]
    np.minimum(box, shape, out=box)
    box = box.astype(np.float32, copy=False)
    strides = strides_of(shape)
    flat = np.zeros((loops, buffers, width), np.float32)
    for rank in range(ranks):
        flat += coefficients[:, :, rank] * strides[:, rank].astype(np.float32)
    used = (coefficients != 0).any(axis=2)
    used &= (extent > 1)[:, None]
    return Regions(
        at=at,
        extent=extent,
        points=_inside(extent),
        flat=flat,
        used=used,
        divided=None if exact else coefficients % 1 != 0,
        elements=_product(box),
        run=_runs(box, shape, group.scattered[..., part]),
        element_bytes=group.element_bytes[:, part],
        count=group.count[:, part],
        kind=group.kind[:, part],
        shared=group.shared[:, part],
        behind_line=group.behind_line[:, part],
        flips=group.flips[:, part],
        scattered=group.scattered[..., part],
        box=box,
        strides=strides,
        stored=shape[0].prod(axis=0),
        last_used=last_loop(used),
    )


def _inside(extent: Floats) -> Floats:
    """Iterations of the loops at each level, shape `(loops + 1, columns)`."""
    points = np.ones((len(extent) + 1, extent.shape[1]))
    for loop in range(len(extent) - 1, -1, -1):
        np.multiply(points[loop + 1], extent[loop], out=points[loop])
    return points


def _product(box: Floats) -> Floats:
    """Elements of boxes."""
    loops, buffers, ranks, width = box.shape
    if not ranks:
        return np.ones((loops, buffers, width), np.float32)
    elements = box[:, :, 0].copy()
    for rank in range(1, ranks):
        elements *= box[:, :, rank]
    return elements


def _runs(box: Floats, shape: Floats, scattered: Bools) -> Floats:
    """Contiguous elements of boxes: whole inner dimensions join the next one, unless that is scattered."""
    loops, buffers, ranks, width = box.shape
    if not ranks:
        return np.ones((loops, buffers, width), np.float32)
    run = np.where(scattered[:, ranks - 1], np.float32(1.0), box[:, :, ranks - 1])
    whole = box[:, :, ranks - 1] == shape[:, ranks - 1]
    for rank in range(ranks - 2, -1, -1):
        whole &= ~scattered[:, rank]
        np.multiply(run, box[:, :, rank], out=run, where=whole)
        whole &= box[:, :, rank] == shape[:, rank]
    return run


@dataclass(slots=True, eq=False)
class Reuse:
    """When each buffer is used again: `repeated` by a loop, `serial` by an earlier statement, or neither.

    `points`, `bytes` and `count` are the distances and number of uses; all of shape `(buffers, columns)`.
    """

    repeated: Bools
    serial: Bools
    points: Floats
    bytes: Floats
    count: Floats


def reuse_of(regions: Regions) -> Reuse:
    """Find the innermost loop at which each access repeats."""
    extent, points = regions.extent, regions.points
    loops, width = extent.shape
    buffers = regions.used.shape[1]
    if not loops:
        nothing, none = np.zeros((buffers, width)), np.zeros((buffers, width), np.bool_)
        return Reuse(none, none, nothing, nothing, nothing)
    real = (extent > 1)[:, None]
    absent = last_loop(real & ~regions.used)
    if regions.shared.any():
        common = last_loop(real & (np.arange(loops)[:, None, None] < regions.shared))
    else:
        common = np.full_like(absent, -1)
    repeated = (absent >= 0) & (absent >= common)
    serial = (common >= 0) & ~repeated
    level = np.where(repeated, absent, common)
    found = repeated | serial
    here = np.arange(width)
    inside = np.maximum(level, 0)
    total = (regions.elements * regions.element_bytes).sum(axis=1)
    return Reuse(
        repeated,
        serial,
        np.where(found, points[inside + 1, here], 0.0),
        np.where(found, total[inside + 1, here], 0.0),
        np.where(repeated, extent[inside, here], np.where(serial, 1.0, 0.0)),
    )


def last_loop(mask: NDArray[np.bool_]) -> Ints:
    """Number of the last loop in `mask`, whose first axis are loops; -1 if none."""
    found = (mask * _ramp(np.arange(1, len(mask) + 1), mask)).max(axis=0, initial=0)
    return np.asarray(found.astype(np.int64) - 1)


def first_loop(mask: NDArray[np.bool_]) -> Ints:
    """Number of the first loop in `mask`, whose first axis are loops; as many as there are if none."""
    found = (mask * _ramp(np.arange(len(mask), 0, -1), mask)).max(axis=0, initial=0)
    return np.asarray(len(mask) - found.astype(np.int64))


def _ramp(numbers: Ints, mask: NDArray[np.bool_]) -> NDArray[np.int16]:
    return numbers.astype(np.int16).reshape(-1, *(1,) * (mask.ndim - 1))
