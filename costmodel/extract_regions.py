"""Regions, strides and reuse of accesses, closed-form over columns.

For each buffer and each loop level, the region that a body touches is a box: in every dimension the sum over
the loops inside of |coefficient| x (extent - 1), plus 1, cut to the buffer. Everything else follows from
boxes and strides. Level `l` is the body of loop `l - 1`: loops `l` and on run in it; level 0 is the whole
statement, the last level one point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from costmodel.extract_columns import Bools, Columns, Group, Ints
from costmodel.extract_statements import Floats


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
        Distance in memory when a loop advances, shape `(buffers, loops, columns)` [elements].
    used
        Which loops an access depends on, same shape.
    elements
        Size of the region at each level, shape `(buffers, loops + 1, columns)`.
    run
        Contiguous elements of it, same shape.
    element_bytes, count, kind, shared
        As of the group.
    row_stride
        Distance between rows of the buffer, shape `(buffers, columns)` [elements].
    stored
        Elements of the stored buffer, shape `(columns,)`.
    """

    at: slice
    extent: Floats
    points: Floats
    flat: Floats
    used: Bools
    elements: Floats
    run: Floats
    element_bytes: Floats
    count: Floats
    kind: Ints
    shared: Ints
    row_stride: Floats
    stored: Floats

    @property
    def bytes(self) -> Floats:
        """Size of the regions [bytes]."""
        return self.elements * self.element_bytes[:, None]

    def lines(self, line: int) -> Floats:
        """Cache lines of the regions, `line` bytes each; at least one."""
        size = self.element_bytes[:, None]
        return np.maximum(self.elements * size / np.minimum(self.run * size, line), 1.0)


def regions_of(columns: Columns, group: Group, part: slice) -> Regions:
    """Evaluate the regions of a part of a group's columns."""
    at = slice(group.columns.start + part.start, group.columns.start + part.stop)
    extent = columns.extent[:, at]
    loops, width = extent.shape
    coefficients = group.coefficients[..., part]
    buffers, ranks = coefficients.shape[:2]
    real = extent > 1
    spans = np.abs(coefficients) * (extent - 1.0)
    box = np.empty((buffers, ranks, loops + 1, width))
    box[:, :, loops] = 1.0 + group.spread[..., part]
    if loops:
        np.cumsum(spans[:, :, ::-1], axis=2, out=spans[:, :, ::-1])
        np.add(spans, box[:, :, loops, None], out=box[:, :, :loops])
    if group.correction is not None:
        box[:, :, :loops] += group.correction[..., part]
    shape = group.shape[..., part]
    np.minimum(box, shape[:, :, None], out=box)
    strides = np.ones((buffers, max(ranks, 1), width))
    for rank in range(ranks - 2, -1, -1):
        strides[:, rank] = strides[:, rank + 1] * shape[:, rank + 1]
    flat = np.zeros((buffers, loops, width))
    for rank in range(ranks):
        flat += coefficients[:, rank] * strides[:, rank, None]
    elements, run = box.prod(axis=1) if ranks else np.ones((buffers, loops + 1, width)), _runs(box, shape)
    return Regions(
        at=at,
        extent=extent,
        points=_inside(extent),
        flat=flat,
        used=(coefficients != 0).any(axis=1) & real,
        elements=elements,
        run=run,
        element_bytes=group.element_bytes[:, part],
        count=group.count[:, part],
        kind=group.kind[:, part],
        shared=group.shared[:, part],
        row_stride=strides[:, max(ranks - 2, 0)],
        stored=shape[0].prod(axis=0),
    )


def _inside(extent: Floats) -> Floats:
    """Iterations of the loops at each level, shape `(loops + 1, columns)`."""
    points = np.ones((len(extent) + 1, extent.shape[1]))
    np.cumprod(extent[::-1], axis=0, out=points[:-1][::-1])
    return points


def _runs(box: Floats, shape: Floats) -> Floats:
    """Contiguous elements of boxes: whole inner dimensions join the next one."""
    ranks = box.shape[1]
    if not ranks:
        return np.ones((box.shape[0], *box.shape[2:]))
    run = box[:, ranks - 1].copy()
    whole = box[:, ranks - 1] == shape[:, ranks - 1, None]
    for rank in range(ranks - 2, -1, -1):
        if not whole.any():
            break
        run *= np.where(whole, box[:, rank], 1.0)
        whole &= box[:, rank] == shape[:, rank, None]
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
    buffers = len(regions.used)
    if not loops:
        nothing, none = np.zeros((buffers, width)), np.zeros((buffers, width), np.bool_)
        return Reuse(none, none, nothing, nothing, nothing)
    real = extent > 1
    numbers = np.arange(loops)[:, None]
    absent = np.where(real & ~regions.used, numbers, -1).max(axis=1)
    common = np.where(real & (numbers < regions.shared[:, None]), numbers, -1).max(axis=1)
    repeated = (absent >= 0) & (absent >= common)
    serial = (common >= 0) & ~repeated
    level = np.where(repeated, absent, common)
    found = repeated | serial
    here = np.arange(width)
    inside = np.maximum(level, 0)
    total = regions.bytes.sum(axis=0)
    return Reuse(
        repeated,
        serial,
        np.where(found, points[inside + 1, here], 0.0),
        np.where(found, total[inside + 1, here], 0.0),
        np.where(repeated, extent[inside, here], np.where(serial, 1.0, 0.0)),
    )


def innermost(mask: NDArray[np.bool_]) -> Ints:
    """Number of the last loop in `mask` along the second last axis, -1 if none."""
    loops = mask.shape[-2]
    numbers = np.arange(loops)[:, None]
    return np.asarray(np.where(mask, numbers, -1).max(axis=-2, initial=-1))
