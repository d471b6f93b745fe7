"""Where the elements of a swizzled tile in shared memory lie.

Shared memory delivers a *line* of 128 bytes at once, a word from each bank. Threads that read from the same
place in different rows meet in few banks where rows begin at multiples of a line, or at simple parts of one.
In a *swizzled* tile rows are stored in another order of their *pieces* of 16 bytes each: that of the number p
lies in the place p xor t, where t is the number of the row, counted in lines if several rows are in one, as
far as there are pieces in a line. So the same piece of as many rows as a line has pieces lies in different
banks, no memory is lost, and the elements of a piece stay neighbours, which are read and copied at once.

    rows of 4 pieces, 2 in a line:    0 1 2 3   4 5 6 7          0 1 2 3   4 5 6 7
    (numbers of pieces)               8 9 . .   . . . .    =>    9 8 . .   . . . .

That takes rows of a power of two of pieces, at least two; others stay as they are.

Source: the shared memory layouts of NVIDIA's CUTLASS (`Swizzle`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

PIECE: Final = 16
"""Bytes that stay neighbours: the most that a thread reads or copies at once."""
_LINE: Final = 8
"""Pieces that shared memory delivers at once."""

Mask = bool | NDArray[np.bool_]
"""A truth value, or one per row of a population."""


def can_swizzle(width: Any, size: int) -> Mask:
    """Whether rows of `width` elements of `size` bytes, a number or column, have pieces to change places."""
    pieces = width * size // PIECE
    legal: Mask = (width * size % PIECE == 0) & (pieces > 1) & (pieces & (pieces - 1) == 0)
    return legal


def turns(width: Any, size: int) -> tuple[Any, Any]:
    """Of such rows: how many are in a line, at least 1, and how many different orders there are."""
    pieces = width * size // PIECE
    return np.maximum(_LINE // np.maximum(pieces, 1), 1), np.minimum(pieces, _LINE)


def swizzled_place(place: Any, width: Any, size: int) -> Any:
    """Where the element lies that would be at `place` [elements] of a tile with such rows, else `place`."""
    lanes, legal = PIECE // size, can_swizzle(width, size)
    rows, orders = turns(np.where(legal, width, 2 * lanes), size)
    moved = (place // lanes ^ place // width // rows % orders) * lanes + place % lanes
    return np.where(legal, moved, place)
