"""What a program reads of memory that it may ask for ahead, and whether asking for it can bring anything.

What the next iteration reads lies beyond an array in the last one, and where tiles or windows reach over its
edge; asking for that costs a little and harms nothing. What lies beyond in all iterations is asked for in
vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ansor.alignment import LINE
from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.nest import Buffer
from ansor.ir.rewriting import reads_memory
from ansor.ir.simplify import interval
from ansor.te.expr import Expr, Load, distinct_nodes, int_value
from ansor.te.structure import same_place


def loads_of(values: Iterable[Expr], buffers: Collection[Buffer]) -> list[Load]:
    """The loads from some buffers in values, of different elements, but for those whose place is loaded."""
    found: list[Load] = []
    for node in (node for value in values for node in distinct_nodes(value)):
        if not isinstance(node, Load) or node.buffer not in buffers or any(map(reads_memory, node.indices)):
            continue
        if not any(one.buffer is node.buffer and same_place(one.indices, node.indices) for one in found):
            found.append(node)
    return found


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
