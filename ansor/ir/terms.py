"""What a reduction's term needs to change anything: conditions without which it is the combiner's identity.

A choice whose other side is the identity needs its condition, as an element of padding does in a maximum. In
a sum, a product needs what any of its factors does. Conditions that read memory do not count.

A factor of zero makes a product nothing, whatever the other factor is. Where that is infinite, or no number,
IEEE arithmetic says otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ansor.ir.rewriting import conjunction, conjuncts, reads_memory
from ansor.te.expr import Binary, BinaryOp, Cast, Const, Expr, Select, rewrite


def needed(term: Expr, identity: Expr) -> tuple[Expr, ...]:
    """The conditions that have to hold, all of them, for `term` to be anything else than `identity`."""
    if not isinstance(identity, Const):
        return ()
    match term:
        case Select(cond=cond, then=then, other=Const(value=value)) if value == identity.value:
            own = tuple(test for test in conjuncts(cond) if not reads_memory(test))
            return (*own, *needed(then, identity))
        case Binary(op=BinaryOp.MUL, a=a, b=b) if identity.value == 0:
            return (*needed(a, identity), *needed(b, identity))
        case Cast(a=a) if identity.value == 0:
            return needed(a, identity)
        case _:
            return ()


def assumed(value: Expr, tests: Collection[Expr]) -> Expr:
    """A value where those conditions of its choices hold that are among `tests`, the very same objects."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Select):
            return None
        parts = conjuncts(node.cond)
        kept = tuple(part for part in parts if not any(part is test for test in tests))
        cond = conjunction(kept)
        if cond is None:
            return assumed(node.then, tests)
        return None if len(kept) == len(parts) else replace(node, cond=cond, then=assumed(node.then, tests))

    return rewrite(value, visit)
