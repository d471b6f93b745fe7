"""What statements read, write, allocate and bind."""

from __future__ import annotations

from dataclasses import dataclass, field

from ansor.ir.nest import Alloc, Buffer, For, Let, Stmt, Store, statement_expressions, walk_statements
from ansor.te.expr import Expr, Load, Var, distinct_nodes


@dataclass
class Accesses:
    """What a statement reads, writes, allocates and binds."""

    reads: dict[Buffer, list[tuple[Expr, ...]]] = field(default_factory=dict)
    writes: dict[Buffer, list[tuple[Expr, ...]]] = field(default_factory=dict)
    allocated: set[Buffer] = field(default_factory=set)
    bound: set[Var] = field(default_factory=set)


def accesses_of(stmt: Stmt) -> Accesses:
    """Collect the accesses of `stmt` and everything in it."""
    found = Accesses()
    for inner in walk_statements(stmt):
        for expr in statement_expressions(inner):
            for node in distinct_nodes(expr):
                if isinstance(node, Load):
                    found.reads.setdefault(node.buffer, []).append(node.indices)
        match inner:
            case Store(buffer=buffer, indices=indices):
                found.writes.setdefault(buffer, []).append(indices)
            case Alloc(buffer=buffer):
                found.allocated.add(buffer)
            case For(var=var) | Let(var=var):
                found.bound.add(var)
            case _:
                pass
    return found
