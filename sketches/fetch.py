"""How many neighbouring elements the threads of a GPU copy into shared memory at once.

A vector must lie within one row of the copy, where elements are neighbours in the tensor as well, and be no
longer than the device loads at once. What that allows depends on the tile.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import dtype_info
from ansor.schedule.bounds import Bounds
from ansor.task.hardware import HardwareParams
from sketches.columns import ColumnKind
from sketches.family import Family
from sketches.launch import load_bytes
from sketches.relations import is_tensorized

Values = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class FetchLimit:
    """
    What one column of copies may hold.

    Parameters
    ----------
    column
        Its position.
    row
        Elements in a row of the copy, shape `(rows,)`.
    most
        Elements that the device loads at once.
    whole
        Whether nothing else is worth a first try: warps multiply what is copied, and as little as a single
        16-bit float is copied by no instruction that threads need not wait for.
    """

    column: int
    row: Values
    most: int
    whole: bool = False

    @property
    def longest(self) -> Values:
        """The longest power of two."""
        return np.asarray(np.minimum(self.row & -self.row, 1 << (self.most.bit_length() - 1)))

    def settled(self, wished: Values) -> Values:
        """The wished lengths where they are possible, else the longest possible powers of two below them."""
        fits = (wished >= 1) & (wished <= self.most) & (self.row % np.maximum(wished, 1) == 0)
        below = 1 << np.floor(np.log2(np.maximum(wished, 1))).astype(np.int64)
        return np.asarray(np.where(fits, wished, np.minimum(self.longest, below)))


def fetch_limits(family: Family, bounds: Bounds, count: int, hardware: HardwareParams) -> list[FetchLimit]:
    """List the limits of all columns of copies, for `count` rows whose bounds are known."""
    limits: list[FetchLimit] = []
    for hole in family.holes:
        if hole.kind is ColumnKind.FETCH:
            stage_id = hole.loop[0]
            region = bounds.stages[stage_id].region
            width = region[-1].width if region else 1
            size = max(dtype_info(x.dtype).bytes for x in bounds.state.stages[stage_id].op.outputs)
            row = np.array(np.broadcast_to(np.asarray(width), count), dtype=np.int64)
            readers = bounds.state.consumers(stage_id)
            whole = any(is_tensorized(bounds.state, reader) for reader in readers)
            limits.append(FetchLimit(hole.start, row, max(load_bytes(hardware) // size, 1), whole))
    return limits
