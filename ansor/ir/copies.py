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

Source: cp.async, cp.async.commit_group and cp.async.wait_group of the PTX ISA.
"""

from __future__ import annotations

from ansor.ir.nest import Store
from ansor.te.expr import Load


def is_copy(stmt: Store) -> bool:
    """Whether a thread may go on before what it stores is there."""
    return stmt.buffer.lead > 0 and isinstance(stmt.value, Load) and stmt.value.buffer.scope == "global"
