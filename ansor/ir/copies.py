"""Copies into shared memory that no thread waits for before it goes on.

A store of an element of global memory to shared memory that is filled ahead is such a *copy*: a thread has
begun it when it goes on, and it is done at some time before a barrier that waits for it. Until then nobody
may touch the element.

A `Commit` ends a group of copies, those that a thread has begun since its last one. `Barrier(pending)` waits
for all groups but the last so many, and plain barriers for all copies, those that are in no group yet, too.
So tiles of several iterations can be on their way, a group each:

    copy tile 0; commit
    copy tile 1; commit
    for k in 0..8:
      barrier but 1                     (tile k is there, tile k + 1 may be on its way)
      if k + 2 < 8: copy tile k + 2
      commit                            (of nothing at last, so that as many groups follow that of a tile)
      use tile k

Where a copy reaches beyond what it copies it stores zeros: a choice between an element and zero is one, too.

Source: cp.async, cp.async.commit_group and cp.async.wait_group of the PTX ISA.
"""

from __future__ import annotations

from math import copysign

from ansor.ir.nest import Store
from ansor.te.expr import Const, Expr, Load, Select, distinct_nodes


def copied(value: Expr) -> tuple[Load, Expr | None] | None:
    """The element that a value is a copy of, and the condition without which it is zero; None for others.

    Whether it is zero, and which element it is, is known without reading memory: that may be only where the
    condition holds.
    """
    match value:
        case Load():
            return value, None
        case Select(cond=cond, then=Load() as load, other=Const(value=other)):
            is_zero = other == 0 and copysign(1, other) > 0
            reads = any(isinstance(node, Load) for x in (cond, *load.indices) for node in distinct_nodes(x))
            return (load, cond) if is_zero and not reads else None
        case _:
            return None


def is_copy(stmt: Store) -> bool:
    """Whether a thread may go on before what it stores is there."""
    if stmt.buffer.lead == 0:
        return False
    found = copied(stmt.value)
    return found is not None and found[0].buffer.scope == "global"
