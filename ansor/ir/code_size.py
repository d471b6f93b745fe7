"""How much code a statement becomes: an estimate of its instructions, before any is written.

Counted are loads, stores, arithmetic and calls, of one vector or one scalar. An addition that takes up a
product of floats is part of it. A function is as many instructions as its polynomial. What loop variables
alone decide, indices and conditions, counts nothing: the emitter moves it out of loops, and where these are
unrolled it is made of numbers; of a choice that they decide the longer side counts.

The estimate is of the code as written. Loads that unrolled iterations share count in each of them, and an
element that is added to counts as loaded and stored: a tile in registers comes out two or three times as long
as it is. One that registers do not hold is what takes LLVM longest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ansor.dtypes import dtype_info, is_float
from ansor.ir.nest import For, Let, LoopKind, Stmt, Store, sub_statements, walk_statements
from ansor.ir.shuffles import SHUFFLE
from ansor.te.expr import Binary, BinaryOp, Call, Expr, Load, Select, Var, children, distinct_nodes, int_value

MAX_VECTORS: Final = 16
"""The longest vector loop that is written as straight code [vectors of the machine]."""

_FUNCTION: Final = 24
"""Instructions of a polynomial with the reduction of its argument."""

_SHORT: Final = {"abs": 1, "floor": 1, "ceil": 1, "round": 1, "fma": 1, "sqrt": 1, "rsqrt": 2, SHUFFLE: 1}
"""Functions that machines have, or nearly."""

_SUMS: Final = frozenset({BinaryOp.ADD, BinaryOp.SUB})

Count = int | NDArray[np.floating[Any]]
"""A number, or a column of them."""


def combined(node: Expr, operands: Sequence[tuple[float, bool]]) -> float:
    """
    Put the instructions of a node together.

    Parameters
    ----------
    node
        What computes.
    operands
        Of each operand the instructions, and whether it loads anything.
    """
    if not any(loads for _, loads in operands):
        return 0
    if isinstance(node, Select) and not operands[0][1]:
        return 1 + max(count for count, _ in operands[1:])
    return sum(count for count, _ in operands) + _cost(node)


def _cost(node: Expr) -> int:
    """Instructions of a node that computes with what is loaded."""
    if isinstance(node, Call):
        return _SHORT.get(node.name, _FUNCTION)
    if isinstance(node, Binary) and node.op in _SUMS:
        return int(not any(is_product(operand) for operand in (node.a, node.b)))
    return 1


def is_product(expr: Expr) -> bool:
    """Whether a float is a product, which one instruction multiplies and adds."""
    return isinstance(expr, Binary) and expr.op is BinaryOp.MUL and is_float(expr.dtype)


@lru_cache(maxsize=256)  # What is written is asked about several times, one statement after the other.
def instructions(value: Expr) -> int:
    """Estimate the instructions of a value in a nest; a shared node counts as often as it is used."""
    loading: dict[int, float] = {}
    for node in distinct_nodes(value):
        if isinstance(node, Load):
            loading[id(node)] = 1
            continue
        inner = [loading.get(id(child)) for child in children(node)]
        if any(count is not None for count in inner):
            loading[id(node)] = combined(node, [(count or 0, count is not None) for count in inner])
    return int(loading.get(id(value), 0))


def own_instructions(stmt: Stmt) -> int:
    """Estimate what a statement itself computes and stores, statements inside it aside."""
    match stmt:
        case Store(value=value):
            return instructions(value) + 1
        case Let(value=value):
            return instructions(value)
        case _:
            return 0


def straight_stores(stmt: Stmt, written: Collection[Var] = ()) -> int:
    """How many stores a statement is written as once its unrolled loops, and those over `written`, are."""
    total = isinstance(stmt, Store) + sum(straight_stores(inner, written) for inner in sub_statements(stmt))
    if isinstance(stmt, For) and (stmt.kind is LoopKind.UNROLLED or stmt.var in written):
        total *= int_value(stmt.extent) or 1
    return total


def vectors_of(loop: For, vector_bits: int) -> int:
    """How often a vectorized loop's body is in the code."""
    return int(vectors_in_code(int_value(loop.extent) or 1, stored_bits(loop.body), vector_bits))


def stored_bits(stmt: Stmt) -> int:
    """Size of the widest element that a statement stores; 1 if it stores none."""
    stores = (inner for inner in walk_statements(stmt) if isinstance(inner, Store))
    return max((value_bits(store.buffer.dtype) for store in stores), default=1)


def vectors_in_code(lanes: Count, bits: Count, vector_bits: int) -> NDArray[np.floating[Any]]:
    """
    Count the vectors that the iterations of a loop are written as; a loop over many is written once.

    Parameters
    ----------
    lanes
        Iterations.
    bits
        Size of the widest element stored.
    vector_bits
        Size of the machine's vectors.

    Returns
    -------
    NDArray[np.floating[Any]]
        Per column, where columns are given; else without dimensions.
    """
    total = np.multiply(lanes, bits)
    straight = np.floor_divide(total, vector_bits) <= MAX_VECTORS
    return np.where(straight, np.ceil(np.divide(total, vector_bits)), 1.0)


def registers_of(elements: int, lanes: int, dtype: str, vector_bits: int) -> int:
    """How many vector registers hold elements of which `lanes` at a time are lanes."""
    return elements // lanes * -(-lanes * value_bits(dtype) // vector_bits)


def value_bits(dtype: str) -> int:
    """Size of a value while it is computed with: narrow floats are computed with as float32."""
    info = dtype_info(dtype)
    return max(info.bits, 32) if info.kind == "float" else info.bits
