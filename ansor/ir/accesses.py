"""What statements read, write, allocate and bind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

from ansor.ir.nest import Alloc, Buffer, For, Let, Stmt, Store, statement_expressions, walk_statements
from ansor.te.expr import Expr, Load, Var, distinct_nodes


@dataclass
class Accesses:
    """What a statement reads, writes, allocates and binds."""

    reads: dict[Buffer, list[tuple[Expr, ...]]] = field(default_factory=dict)
    writes: dict[Buffer, list[tuple[Expr, ...]]] = field(default_factory=dict)
    allocated: set[Buffer] = field(default_factory=set)
    bound: set[Var] = field(default_factory=set)

    @cached_property
    def uses(self) -> Counter[Buffer]:
        """How many times each buffer is read or written in the text."""
        uses: Counter[Buffer] = Counter()
        for found in (self.reads, self.writes):
            uses.update({buffer: len(places) for buffer, places in found.items()})
        return uses

    def own_of(self, part: Accesses) -> set[Buffer]:
        """What is allocated here that nothing but a part, whose accesses are given, uses.

        Each time it is executed the part computes what it reads of that.
        """
        return {b for b, uses in part.uses.items() if b in self.allocated and uses == self.uses[b]}


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
