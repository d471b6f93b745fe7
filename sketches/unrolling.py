"""What unroll pragmas do, for whole populations: which limits unroll the same loops.

Lowering unrolls a loop if its extent times the steps of its body is at most the pragma's limit
(`ansor.ir.passes.unroll`). So two limits do the same if no such product lies between them. Products are
counted here per row, from the extents alone. Whether lowering makes a loop a vector without being asked,
which counts as one step, depends on the machine: there a product is only known to lie between two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float32]
"""Whole numbers; those too large to be exact are beyond any limit."""
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """
    What a pragma around a stage would find.

    Parameters
    ----------
    least, most
        Bounds of the steps that the stage takes with all its loops unrolled, shape `(rows,)`.
    tested
        Bounds of the steps of each loop that a pragma may unroll, 0 and 0 where the loop is none: pairs of
        arrays of shape `(loops, rows)`.
    """

    least: Counts
    most: Counts
    tested: tuple[tuple[Counts, Counts], ...]

    def effect(self, limit: NDArray[np.int64]) -> NDArray[np.int64]:
        """
        Stand for what a pragma does: of rows with equal loops, those with equal numbers unroll the same ones.

        Parameters
        ----------
        limit
            Most steps, shape `(rows,)`.

        Returns
        -------
        NDArray[np.int64]
            The steps of the largest loop that is unrolled; minus the limit where that is not known.
        """
        largest, unsure = np.zeros(len(limit), dtype=np.float32), np.zeros(len(limit), dtype=np.bool_)
        for least, most in self.tested:
            fits = most <= limit
            largest = np.maximum(largest, (most * fits).max(axis=0))
            unsure |= (~fits & (least <= limit)).any(axis=0)
        return np.where(unsure, -limit, largest.astype(np.int64))


def count_steps(
    extents: Counts,
    reduces: Mask,
    operations: Mask,
    serial: Mask,
    inside: Sequence[tuple[int, Steps]],
    stores: int,
) -> Steps:
    """
    Count the steps of a stage.

    Parameters
    ----------
    extents
        Of the loops, shape `(loops, rows)` [iterations].
    reduces
        Which loops reduce, shape `(loops, 1)`. From the first one on that has a second iteration, the
        initialisation has spatial loops of its own.
    operations, serial
        Which loops are one operation of the machine, and which may be unrolled; shape `(loops, rows)`.
    inside
        The stages that are computed in it, each with the position of the loop around it.
    stores
        Most that one iteration stores, of values that it computes together.
    """
    count, rows = extents.shape
    if not count:
        one = np.ones(rows, dtype=np.float32)
        return Steps(
            one, one * np.float32(stores), tuple(pair for _, other in inside for pair in other.tested)
        )
    active = extents > 1
    at = np.arange(count)[:, None]
    last = np.where(active, at, -1).max(axis=0)
    first = np.where(active & reduces, at, count).min(axis=0)
    shared = at < first
    takes = np.where(operations, np.float32(1), extents)
    loose = np.where((at == last) & ~reduces, np.float32(1), takes)
    least, most = _products(loose), np.float32(stores) * _products(takes)
    tested = [pair for _, other in inside for pair in other.tested]
    for position, other in inside:
        around = slice(position + 1)
        least[around] += other.least * _products(loose[around])
        most[around] += other.most * _products(takes[around])
    usable = active & serial
    if reduces.any():
        spatial = np.where(reduces, np.float32(1), takes)
        innermost = np.where(active & ~reduces, at, -1).max(axis=0)
        alone = (at == innermost) & ((innermost > first) | (first == count))
        start_least = _products(np.where(alone, np.float32(1), spatial))
        start_most = np.float32(stores) * _products(spatial)
        apart = usable & ~shared & ~reduces
        tested.append((start_least * apart, start_most * apart))
        tested.append(((least + start_least * shared) * usable, (most + start_most * shared) * usable))
        return Steps(least[0] + start_least[0], most[0] + start_most[0], tuple(tested))
    tested.append((least * usable, most * usable))
    return Steps(least[0], most[0], tuple(tested))


def _products(extents: Counts) -> Counts:
    """Products of each row with all further ones, same shape."""
    return np.asarray(np.cumprod(extents[::-1], axis=0)[::-1])
