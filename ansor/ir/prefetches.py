"""Whether asking memory for an element can bring anything.

What the next iteration reads lies beyond an array in the last one, and where tiles or windows reach over its
edge; asking for that costs a little and harms nothing. What lies beyond in all iterations is asked for in
vain.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansor.alignment import LINE
from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.nest import Buffer
from ansor.ir.simplify import interval
from ansor.te.expr import Expr, int_value


def may_bring(buffer: Buffer, indices: Sequence[Expr], bounds: Bounds) -> bool:
    """Whether some values of the variables may give a line that an element of `buffer` is in.

    Along the last dimension that is one less than a line away.
    """
    last = len(indices) - 1
    for dim, (index, shape) in enumerate(zip(indices, buffer.shape, strict=True)):
        low, high = interval(index, bounds)
        near = LINE // dtype_info(buffer.dtype).bytes - 1 if dim == last else 0
        extent = int_value(shape)
        before = high is not None and high < -near
        behind = low is not None and extent is not None and low >= extent + near
        if before or behind:
            return False
    return True
