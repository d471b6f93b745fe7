"""Factors that lie in scratch of the program's own: flipped once, where they are stored.

A product whose instruction wants the other sign (`ansor.codegen.llvm.flipping`) flips a factor each time that
it uses it, for as little as one row of registers. Packing stores a copy of it anyway, which holds flipped
elements instead:

    A.local[i, k] = A[i, k]                           A.local[i, k] = uint8(A[i, k]) + 128
    C.acc[i, j] += (uint8(A.local[i, k]) + 128)*B  =>  C.acc[i, j] += A.local[i, k]*B

Flipping twice changes nothing: whatever else reads the copy, lanes that are left over above all, flips what
it reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ansor.codegen.llvm.flipping import flipped, flipped_factor
from ansor.ir.nest import (
    Alloc,
    Buffer,
    For,
    LoopKind,
    LoopNest,
    Prefetch,
    Stmt,
    Store,
    walk_statements,
)
from ansor.ir.rewriting import map_expressions, map_statements
from ansor.te.expr import Expr, Load, distinct_nodes, rewrite


def store_flipped(nest: LoopNest) -> LoopNest:
    """`nest` with flipped elements in each buffer of its own of which a product flips what it reads."""
    statements = list(walk_statements(nest.body))
    allocated = {stmt.buffer for stmt in statements if isinstance(stmt, Alloc)}
    new: dict[Buffer, Buffer] = {}
    for stmt in statements:
        for node in _products(stmt):
            factor = flipped_factor(node)
            if isinstance(factor, Load) and factor.buffer in allocated:
                new[factor.buffer] = replace(factor.buffer, dtype=node.dtype)
    return replace(nest, body=_storing(_reading(nest.body, new), new)) if new else nest


def _products(stmt: Stmt) -> Iterator[Expr]:
    """What a tensorized loop computes, node by node; nothing of another statement."""
    if isinstance(stmt, For) and stmt.kind is LoopKind.TENSORIZE and isinstance(stmt.body, Store):
        yield from distinct_nodes(stmt.body.value)


def _reading(stmt: Stmt, new: Mapping[Buffer, Buffer]) -> Stmt:
    """`stmt` reading flipped elements of some buffers."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in new:
            buffer = new[node.buffer]
            return flipped(Load(buffer, node.indices, buffer.dtype))
        factor = flipped_factor(node)
        return None if factor is None else flipped_factor(factor)

    return map_expressions(stmt, lambda expr: rewrite(expr, visit))


def _storing(stmt: Stmt, new: Mapping[Buffer, Buffer]) -> Stmt:
    """`stmt` storing flipped elements to some buffers."""
    stmt = map_statements(stmt, lambda inner: _storing(inner, new))
    match stmt:
        case Store() if stmt.buffer in new:
            return replace(stmt, buffer=new[stmt.buffer], value=flipped(stmt.value))
        case Alloc() | Prefetch() if stmt.buffer in new:
            return replace(stmt, buffer=new[stmt.buffer])
        case _:
            return stmt
