"""Tensorized loops, as all emitters see them: an element to which the product of two operands is added."""

from __future__ import annotations

from dataclasses import dataclass

from ansor.intrinsics.pattern import product_factors
from ansor.ir.nest import For, Store
from ansor.ir.structure import same_structure
from ansor.te.expr import Binary, BinaryOp, Expr, Load, distinct_nodes, free_vars


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
    match store.value:
        case (
            Binary(op=BinaryOp.ADD, a=Load() as sum_, b=product)
            | Binary(op=BinaryOp.ADD, a=product, b=Load() as sum_)
        ):
            operands = product_factors(product, converted)
        case _:
            return None
    if operands is None or sum_.buffer is not store.buffer:
        return None
    reads = [n for factor in operands for n in distinct_nodes(factor) if isinstance(n, Load)]
    if any(read.buffer is store.buffer for read in reads):
        return None
    same = all(same_structure(a, b) for a, b in zip(sum_.indices, store.indices, strict=True))
    return Update(store, sum_, operands) if same else None
