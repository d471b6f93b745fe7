"""Which part of a reduction's updates is made, where lowering leaves out those that change nothing.

The counterpart of `ansor.ir.passes.identities`: conditions on the same axes are decided outside of a register
tile where it has one row along these, and by writing their reduction loops out where it has all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from ansor.ir.passes.identities import MOST_COPIES, MOST_STORES
from ansor.schedule.affine import Interval
from ansor.schedule.skipping import Needed
from ansor.te.expr import Var, int_value
from costmodel.extraction.form import Mask
from costmodel.extraction.indices import Floats, LoopIndices

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Skip:
    """
    Updates that change nothing unless conditions on some axes hold.

    Parameters
    ----------
    share
        Part of the updates for which they hold.
    moving
        The loops that move the elements along those axes, and in which rows.
    copies
        Iterations of the reduction along those axes.
    """

    share: float
    moving: Mapping[int, Mask]
    copies: int


def skips_of(
    parts: Sequence[Needed], spatial: Collection[Var], axes: Mapping[Var, Interval], indices: LoopIndices
) -> tuple[Skip, ...]:
    """What a statement's loops have to do with what its terms need.

    Parameters
    ----------
    spatial
        The axes of elements.
    axes
        All axes as forms of loops.
    indices
        Reads such forms.
    """
    found = []
    for part in parts:
        moving: dict[int, Mask] = {}
        for axis in part.axes.intersection(spatial):
            terms = indices.dimension(axes[axis].base, 0, int_value(axis.extent) or 1).terms
            for number, coefficient in terms.items():
                moving[number] = moving.get(number, False) | np.not_equal(coefficient, 0)
        reducing = prod(int_value(axis.extent) or 1 for axis in part.axes.difference(spatial))
        found.append(Skip(part.share, moving, reducing))
    return tuple(found)


@dataclass(slots=True, eq=False)
class Skips:
    """
    The skips of many statements, as many of each as the most have.

    Parameters
    ----------
    share, copies
        As of `Skip`, 1 where there is none; shape ``(skips, columns)``.
    moving
        Which loops, shape ``(skips, loops, columns)``.
    """

    share: Floats
    copies: Floats
    moving: Bools

    @classmethod
    def of(cls, count: int, loops: int, total: int) -> Skips:
        """Nothing is left out yet."""
        shape = (count, total)
        return cls(np.ones(shape), np.ones(shape), np.zeros((count, loops, total), np.bool_))

    def put(self, at: slice, skips: Sequence[Skip]) -> None:
        """Note those of some columns."""
        for row, skip in enumerate(skips):
            self.share[row, at], self.copies[row, at] = skip.share, skip.copies
            for number, rows in skip.moving.items():
                self.moving[row, number, at] = rows

    def made(self, at: slice, extent: Floats, inside: Bools, written: Bools, parallel: Bools) -> Floats:
        """
        The part of the updates that is made, of some columns.

        Parameters
        ----------
        at
            Which columns.
        extent
            Iterations of each loop, shape ``(loops, columns)``.
        inside, written, parallel
            Which loops are in the tile, become copies of their body, and are parallel; same shape.
        """
        copies = made = np.ones(extent.shape[1])
        straight = np.where(written, extent, 1.0).prod(axis=0)
        for number, carrying in enumerate(self.moving[:, :, at]):
            moving = carrying & (extent > 1)
            rows, around = moving & inside, moving & ~inside
            several = rows.any(axis=0)
            wanted = copies * self.copies[number, at] * np.where(around, extent, 1.0).prod(axis=0)
            fits = ~(rows & ~written).any(axis=0) & ~(around & parallel).any(axis=0)
            fits &= (wanted <= MOST_COPIES) & (wanted * straight <= MOST_STORES)
            copies = np.where(several & fits, wanted, copies)
            made = np.where(~several | fits, made * self.share[number, at], made)
        return made
