"""How far accesses move in memory when a loop goes one up, for all columns at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from costmodel.extraction.columns import Bools, Columns, Group, Ints
from costmodel.extraction.indices import Floats


class Steps(NamedTuple):
    """
    What one loop of each column does to its accesses, all of shape `(buffers, columns)`.

    Parameters
    ----------
    distance
        Elements between what neighbouring iterations touch, as far as indices are sums of loops.
    moves
        Whether the loop is in the indices.
    bent
        Whether it is in quotients and remainders, or in indices that depend on data.
    last
        Whether it is in the last index.
    """

    distance: Floats
    moves: Bools
    bent: Bools
    last: Bools


def steps_along(group: Group, loop: Ints, columns: Ints) -> Steps:
    """What the loop of the given number does in each of some columns of a group."""
    coefficients = np.moveaxis(group.coefficients[loop, :, :, columns], 0, 2)
    within = coefficients != 0
    bent = within & group.scattered[:, :, columns]  # (buffers, dimensions, columns)
    if group.correction is not None:  # it grows at the loops that are in quotients and remainders
        bent = bent | bending(group.correction)[loop, :, :, columns].transpose(1, 2, 0)
    distance = (coefficients * strides_of(group.shape[:, :, columns])[:, : within.shape[1]]).sum(axis=1)
    return Steps(distance, (within | bent).any(axis=1), bent.any(axis=1), within[:, -1:].any(axis=1))


def steps_along_two(
    columns: Columns, at: Ints, inner: Ints, outer: Ints
) -> Iterator[tuple[Ints, Steps, Steps]]:
    """What two loops of each column of `at` do to its accesses: positions in `at`, and both, by group."""
    for group in columns.groups:
        mine = np.flatnonzero((at >= group.columns.start) & (at < group.columns.stop))
        if len(mine):
            here = at[mine] - group.columns.start
            yield mine, steps_along(group, inner[mine], here), steps_along(group, outer[mine], here)


def strides_of(shape: Floats) -> Floats:
    """How far apart neighbours lie in each dimension, the second axis of `shape`, one at least [elements]."""
    buffers, ranks, columns = shape.shape
    made = np.ones((buffers, max(ranks, 1), columns))
    for rank in range(ranks - 2, -1, -1):
        np.multiply(made[:, rank + 1], shape[:, rank + 1], out=made[:, rank])
    return made


def bending(correction: Floats) -> Bools:
    """Which loops are in the quotients and remainders of each index, in the shape of `correction`."""
    inside = np.concatenate([correction[1:], np.zeros_like(correction[:1])])
    return np.asarray(correction != inside)
