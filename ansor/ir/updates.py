"""Tensorized loops, as all emitters see them: an element to which the product of two operands is added."""

from __future__ import annotations

from dataclasses import dataclass

from ansor.intrinsics.pattern import product_factors
from ansor.ir.nest import For, Store
from ansor.ir.terms import combination_of
from ansor.te.expr import BinaryOp, Expr, Load, distinct_nodes, free_vars


@dataclass(frozen=True, slots=True)
class Update:
    """What a tensorized loop does: `store` adds the product of two operands, before conversion, to `sum_`."""

    store: Store
    sum_: Load
    operands: tuple[Expr, Expr]


def update_of(loop: For, converted: bool = True) -> Update | None:
    """The loop's body as an update, its operands `converted` or not; None if it is something else."""
    store = loop.body
    if not isinstance(store, Store) or any(loop.var in free_vars(index) for index in store.indices):
        return None
    found = combination_of(store)
    if found is None or found.op is not BinaryOp.ADD or found.condition is not None:
        return None
    operands = product_factors(found.term, converted)
    if operands is None:
        return None
    reads = [n for factor in operands for n in distinct_nodes(factor) if isinstance(n, Load)]
    return (
        None if any(read.buffer is store.buffer for read in reads) else Update(store, found.element, operands)
    )
