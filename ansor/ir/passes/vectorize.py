"""Vectorising what the schedule left alone: innermost loops that store element after element.

A loop that nothing is computed in, that runs over the last index of its stores, and whose iterations are
independent, becomes vector code of the machine's width. Its extent is divided by the largest lane count
that divides it if that is at least half a vector; else short loops become one vector of odd length, and
long ones a vectorised bulk and a vectorised rest. Loops with an annotation of their own stay as they are.
"""

from __future__ import annotations

from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.independence import IndependenceTest
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, Stmt, Store, seq, walk_statements
from ansor.ir.rewriting import fresh_copy, map_expressions, map_statements, replace_in
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Const, Expr, Var, free_vars, int_value, walk

LONGEST_ODD_VECTOR = 4
"""The longest loop, in vectors, that becomes one vector although no good lane count divides it."""


def vectorize_innermost(stmt: Stmt, vector_bits: int, bounds: Bounds) -> Stmt:
    """`stmt` with its innermost serial loops vectorised where that is legal and stores are contiguous.

    `bounds` hold every loop variable of `stmt` and around it.
    """
    return _visit(stmt, vector_bits, IndependenceTest(bounds))


def _visit(stmt: Stmt, bits: int, test: IndependenceTest) -> Stmt:
    if isinstance(stmt, For):
        if stmt.kind is LoopKind.VECTORIZED:
            return stmt
        if stmt.kind is LoopKind.SERIAL and not any(
            isinstance(inner, (For, Alloc)) for inner in walk_statements(stmt.body)
        ):
            return _vectorized(stmt, bits, test)
    return map_statements(stmt, lambda inner: _visit(inner, bits, test))


def _vectorized(loop: For, bits: int, test: IndependenceTest) -> Stmt:
    extent = int_value(loop.extent)
    stores = [s for s in walk_statements(loop.body) if isinstance(s, Store)]
    if extent is None or extent < 2 or not stores:
        return loop
    if not all(_is_contiguous(s, loop.var) for s in stores) or not test.independent(loop):
        return loop
    lanes = max(2, bits // max(dtype_info(s.buffer.dtype).bits for s in stores))
    if extent <= lanes:
        return For(loop.var, extent, LoopKind.VECTORIZED, loop.body)
    best = max(d for d in range(1, lanes + 1) if extent % d == 0)
    if 2 * best >= lanes:
        return _strips(loop, loop.body, extent // best, best)
    if extent <= LONGEST_ODD_VECTOR * lanes:
        return For(loop.var, extent, LoopKind.VECTORIZED, loop.body)
    bulk = extent // lanes
    rest = Var(loop.var.name, loop.var.dtype)
    tail = _replace(fresh_copy(loop.body), loop.var, _plus(rest, bulk * lanes))
    return seq(
        _strips(loop, loop.body, bulk, lanes),
        For(rest, extent - bulk * lanes, LoopKind.VECTORIZED, tail),
    )


def _strips(loop: For, body: Stmt, count: int, lanes: int) -> Stmt:
    """`count` vectors of `lanes` elements."""
    strip, lane = Var(loop.var.name, loop.var.dtype), Var(f"{loop.var.name}.v", loop.var.dtype)
    start = Binary(BinaryOp.MUL, strip, Const(lanes, INDEX_DTYPE), INDEX_DTYPE)
    vector = _replace(body, loop.var, Binary(BinaryOp.ADD, start, lane, INDEX_DTYPE))
    return For(strip, count, loop.kind, For(lane, lanes, LoopKind.VECTORIZED, vector))


def _plus(var: Var, amount: int) -> Expr:
    return Binary(BinaryOp.ADD, var, Const(amount, INDEX_DTYPE), INDEX_DTYPE)


def _replace(stmt: Stmt, var: Var, value: Expr) -> Stmt:
    nothing: dict[Buffer, Buffer] = {}
    return map_expressions(stmt, lambda expr: replace_in(expr, {var: value}, nothing))


def _is_contiguous(store: Store, var: Var) -> bool:
    """Whether consecutive values of `var` store to consecutive elements."""
    if not store.indices or any(var in free_vars(index) for index in store.indices[:-1]):
        return False
    return _coefficient(store.indices[-1], var) == 1


def _coefficient(expr: Expr, var: Var) -> int | None:
    """The factor of `var` in an index that is linear in it; None if it is not seen to be linear."""
    if expr is var:
        return 1
    if not any(node is var for node in walk(expr)):
        return 0
    if isinstance(expr, Binary):
        a, b = _coefficient(expr.a, var), _coefficient(expr.b, var)
        if a is None or b is None:
            return None
        if expr.op is BinaryOp.ADD:
            return a + b
        if expr.op is BinaryOp.SUB:
            return a - b
        if expr.op is BinaryOp.MUL:
            scale = int_value(expr.b) if b == 0 else int_value(expr.a)
            return None if scale is None else scale * (a + b)
    return None
