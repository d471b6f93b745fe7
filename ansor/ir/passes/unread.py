"""Memory that nothing reads is not filled.

Simplified values may read less than a schedule brings near: nothing is left of `A[k] - A[k]` where these are
integers, nor of its product with `B[k]`. A tile of `B` in shared memory would be filled for nothing then,
with barriers around it, and compilers warn of that.

    allocate B.shared[16] shared
    B.shared[t] = B[t]                =>    C[t] = 0
    C[t] = 0
"""

from __future__ import annotations

from collections.abc import Collection

from ansor.ir.nest import (
    Alloc,
    Buffer,
    Prefetch,
    Stmt,
    Store,
    statement_expressions,
    sub_statements,
    walk_statements,
)
from ansor.ir.passes.guards import NOTHING, is_nothing
from ansor.ir.rewriting import map_statements
from ansor.te.expr import Load, distinct_nodes


def drop_unread(stmt: Stmt, own: Collection[Buffer] = ()) -> Stmt:
    """`stmt` without the memory that it allocates for nothing, and without what was read for that alone.

    What it stores to `own` memory, which is allocated around it, nothing else reads.
    """
    unread = _unread(stmt, own)
    return drop_unread(_without(stmt, unread), {*own} - unread) if unread else stmt


def _unread(stmt: Stmt, own: Collection[Buffer]) -> set[Buffer]:
    """What `stmt` allocates, or owns, and reads at most to fill such memory, as unused sums do."""
    allocated, needed = {*own}, set[Buffer]()
    sources: dict[Buffer, set[Buffer]] = {}
    for inner in walk_statements(stmt):
        nodes = (node for expr in statement_expressions(inner) for node in distinct_nodes(expr))
        loaded = {node.buffer for node in nodes if isinstance(node, Load)}
        match inner:
            case Store(buffer=buffer):
                sources.setdefault(buffer, set()).update(loaded)
            case Alloc(buffer=buffer):
                allocated.add(buffer)
            case _:
                needed |= loaded
    pending = [*needed, *(sources.keys() - allocated)]
    while pending:
        found = sources.get(pending.pop(), set()) - needed
        needed |= found
        pending += found
    return allocated - needed


def _without(stmt: Stmt, unread: Collection[Buffer]) -> Stmt:
    match stmt:
        case Store(buffer=buffer) | Prefetch(buffer=buffer) if buffer in unread:
            return NOTHING
        case Alloc(buffer=buffer, body=body) if buffer in unread:
            return _without(body, unread)
        case _:
            made = map_statements(stmt, lambda inner: _without(inner, unread))
            inside = sub_statements(made)
            return NOTHING if inside and all(map(is_nothing, inside)) else made
