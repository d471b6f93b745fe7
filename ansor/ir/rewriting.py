"""Rebuilding statements: with other sub-statements, other expressions, or fresh variables and buffers.

Nothing is rebuilt that does not change, so an unchanged statement is the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import is_

from ansor.dtypes import is_float
from ansor.ir.nest import (
    Alloc,
    Barrier,
    Buffer,
    Commit,
    For,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    seq,
    sub_statements,
)
from ansor.te.expr import (
    LOGICAL,
    Binary,
    BinaryOp,
    Expr,
    Load,
    Not,
    Read,
    Var,
    distinct_nodes,
    free_vars,
    rewrite,
)

NEGATED = {
    BinaryOp.LT: BinaryOp.GE,
    BinaryOp.LE: BinaryOp.GT,
    BinaryOp.GT: BinaryOp.LE,
    BinaryOp.GE: BinaryOp.LT,
    BinaryOp.EQ: BinaryOp.NE,
    BinaryOp.NE: BinaryOp.EQ,
}
"""The comparison that holds where another one does not."""


Row = tuple[Buffer, tuple[Expr, ...]]
"""A buffer that has room for many of another one (`with_rows`), and the outermost indices of one of these."""


def with_statements(stmt: Stmt, new: tuple[Stmt, ...]) -> Stmt:
    """`stmt` over other sub-statements, in the order of `sub_statements`."""
    if all(map(is_, sub_statements(stmt), new)):
        return stmt
    match stmt:
        case For(var=var, extent=extent, kind=kind):
            return For(var, extent, kind, new[0])
        case Let(var=var, value=value):
            return Let(var, value, new[0])
        case Alloc(buffer=buffer):
            return Alloc(buffer, new[0])
        case If(cond=cond):
            return If(cond, *new)
        case Seq():
            return seq(*new)
        case Store() | Barrier() | Commit() | Prefetch():
            return stmt


def map_statements(stmt: Stmt, visit: Callable[[Stmt], Stmt]) -> Stmt:
    """`stmt` with `visit` applied to each direct sub-statement."""
    inner = sub_statements(stmt)
    return with_statements(stmt, tuple([visit(one) for one in inner])) if inner else stmt


def map_expressions(stmt: Stmt, visit: Callable[[Expr], Expr]) -> Stmt:
    """`stmt` with `visit` applied to the expressions of every statement in it."""
    stmt = map_statements(stmt, lambda inner: map_expressions(inner, visit))
    match stmt:
        case For(extent=Expr() as extent):
            new_extent = visit(extent)
            return stmt if new_extent is extent else replace(stmt, extent=new_extent)
        case Store(indices=indices, value=value):
            new_indices, new_value = tuple(map(visit, indices)), visit(value)
            same = new_value is value and all(map(is_, indices, new_indices))
            return stmt if same else replace(stmt, indices=new_indices, value=new_value)
        case Prefetch(indices=indices):
            new_indices = tuple(map(visit, indices))
            return stmt if all(map(is_, indices, new_indices)) else replace(stmt, indices=new_indices)
        case Let(value=value):
            new_value = visit(value)
            return stmt if new_value is value else replace(stmt, value=new_value)
        case If(cond=cond):
            new_cond = visit(cond)
            return stmt if new_cond is cond else replace(stmt, cond=new_cond)
        case _:
            return stmt


def replace_in(expr: Expr, variables: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer]) -> Expr:
    """`expr` with variables and buffers replaced and nothing folded: the same arithmetic elsewhere."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return variables.get(node)
        if isinstance(node, Load) and node.buffer in buffers:
            return Load(buffers[node.buffer], node.indices, node.dtype)
        return None

    return rewrite(expr, visit)


def in_rows(stmt: Stmt, variables: Mapping[Var, Expr], rows: Mapping[Buffer, Row]) -> Stmt:
    """`stmt` with variables replaced, and with rows of other buffers in place of buffers that it uses.

    Nothing is folded; what `stmt` allocates stays as it is.
    """

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Var):
            return variables.get(node)
        if isinstance(node, Load) and node.buffer in rows:
            buffer, outer = rows[node.buffer]
            return Load(buffer, (*outer, *node.indices), node.dtype)
        return None

    def moved(inner: Stmt) -> Stmt:
        inner = map_statements(inner, moved)
        if isinstance(inner, (Store, Prefetch)) and inner.buffer in rows:
            buffer, outer = rows[inner.buffer]
            return replace(inner, buffer=buffer, indices=(*outer, *inner.indices))
        return inner

    return moved(map_expressions(stmt, lambda expr: rewrite(expr, visit)))


def with_rows(buffer: Buffer, extents: Sequence[int], scope: str) -> Buffer:
    """A buffer in `scope` that has room for many of `buffer`, in further, outermost dimensions.

    A ValueError for one of symbolic size.
    """
    for extent in reversed(extents):
        strides = None if buffer.strides is None else (buffer.elements, *buffer.strides)
        buffer = replace(buffer, shape=(extent, *buffer.constant_shape), strides=strides)
    return replace(buffer, shape=buffer.constant_shape, scope=scope)


def simultaneous(stores: Sequence[Store]) -> Stmt:
    """Some stores, of which none sees what another one has stored."""
    if len(stores) == 1:
        return stores[0]
    temporaries = [Var(f"{store.buffer.name}.next", store.value.dtype) for store in stores]
    made: Stmt = seq(*(replace(store, value=var) for store, var in zip(stores, temporaries, strict=True)))
    for store, var in zip(reversed(stores), reversed(temporaries), strict=True):
        made = Let(var, store.value, made)
    return made


def stores_of(stmt: Stmt) -> tuple[Store, ...]:
    """The stores that a statement is `simultaneous` of; none for another statement."""
    values: dict[Expr, Expr] = {}
    while isinstance(stmt, Let):
        values[stmt.var] = stmt.value
        stmt = stmt.body
    parts = stmt.stmts if isinstance(stmt, Seq) else (stmt,)
    stores = tuple(one for one in parts if isinstance(one, Store))
    if not values:
        return stores if stmt in stores else ()
    used = free_vars(*values.values(), *(index for store in stores for index in store.indices))
    if [*values] != [getattr(one, "value", None) for one in parts] or not used.isdisjoint(values):
        return ()
    return tuple(replace(store, value=values[store.value]) for store in stores)


def fresh_copy(stmt: Stmt, values: Mapping[Var, Expr] | None = None) -> Stmt:
    """A copy that binds and allocates its own variables and buffers, so that it can stand beside `stmt`.

    Free variables with `values` are replaced by these.
    """
    return _copy(stmt, dict(values or {}), {})


def _copy(stmt: Stmt, variables: dict[Var, Expr], buffers: dict[Buffer, Buffer]) -> Stmt:
    def expr(old: Expr) -> Expr:
        return replace_in(old, variables, buffers)

    match stmt:
        case For(var=var, extent=extent, kind=kind, body=body):
            new_extent = extent if isinstance(extent, int) else expr(extent)
            new_var = Var(var.name, var.dtype)
            variables[var] = new_var
            return For(new_var, new_extent, kind, _copy(body, variables, buffers))
        case Let(var=var, value=value, body=body):
            new_value = expr(value)
            new_var = Var(var.name, var.dtype)
            variables[var] = new_var
            return Let(new_var, new_value, _copy(body, variables, buffers))
        case Alloc(buffer=buffer, body=body):
            buffers[buffer] = replace(buffer)
            return Alloc(buffers[buffer], _copy(body, variables, buffers))
        case Store(buffer=buffer, indices=indices, value=value):
            return Store(buffers.get(buffer, buffer), tuple(map(expr, indices)), expr(value))
        case Prefetch(buffer=buffer, indices=indices, near=near):
            return Prefetch(buffers.get(buffer, buffer), tuple(map(expr, indices)), near)
        case If(cond=cond, then=then, other=other):
            new_other = None if other is None else _copy(other, variables, buffers)
            return If(expr(cond), _copy(then, variables, buffers), new_other)
        case Seq(stmts=stmts):
            return Seq(tuple(_copy(one, variables, buffers) for one in stmts))
        case Barrier() | Commit():
            return stmt


def operands(expr: Expr, op: BinaryOp) -> tuple[Expr, ...]:
    """The operands of a chain of one operator, in order."""
    pending, found = [expr], list[Expr]()
    while pending:
        part = pending.pop()
        if isinstance(part, Binary) and part.op is op:
            pending += [part.b, part.a]
        else:
            found.append(part)
    return tuple(found)


def conjuncts(cond: Expr) -> tuple[Expr, ...]:
    """The conditions that `cond` is the conjunction of, in order."""
    return operands(cond, BinaryOp.AND)


def negated(cond: Expr) -> Expr:
    """
    The condition that holds where `cond` does not: of `i < 2 and k >= 3`, `i >= 2 or k < 3`.

    Comparisons of floats only get a `not`: where one is no number the opposite comparison fails as well.
    """
    opposite: dict[int, Expr] = {}
    for node in distinct_nodes(cond):
        match node:
            case Not(a=a):
                result = a
            case Binary(op=op, a=a, b=b) if op in LOGICAL:
                op = BinaryOp.OR if op is BinaryOp.AND else BinaryOp.AND
                result = Binary(op, opposite[id(a)], opposite[id(b)], "bool")
            case Binary(op=op, a=a, b=b) if op in NEGATED and not is_float(a.dtype):
                result = Binary(NEGATED[op], a, b, "bool")
            case _:
                result = Not(node)
        opposite[id(node)] = result
    return opposite[id(cond)]


def conjunction(conditions: tuple[Expr, ...]) -> Expr | None:
    """All of `conditions`; None if there are none."""
    result: Expr | None = None
    for condition in conditions:
        result = condition if result is None else Binary(BinaryOp.AND, result, condition, "bool")
    return result


def guarded(conditions: tuple[Expr, ...], stmt: Stmt) -> Stmt:
    """`stmt` where all `conditions` hold."""
    cond = conjunction(conditions)
    return stmt if cond is None else If(cond, stmt)


def without_tests(stmt: Stmt, is_known: Callable[[If, Expr], bool]) -> Stmt:
    """`stmt` without those parts of the conditions in it that are known to hold: `is_known(where, part)`."""
    made = map_statements(stmt, lambda inner: without_tests(inner, is_known))
    if not isinstance(stmt, If) or not isinstance(made, If):
        return made
    parts = conjuncts(stmt.cond)
    kept = tuple(part for part in parts if not is_known(stmt, part))
    if len(kept) == len(parts):
        return made
    cond = conjunction(kept)
    return made.then if cond is None else If(cond, made.then, made.other)


def reads_memory(expr: Expr) -> bool:
    """Whether the value of `expr` depends on what a buffer or a tensor holds."""
    seen: set[int] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, (Load, Read)):
            return True
        inner = node.children()
        if inner and id(node) not in seen:
            seen.add(id(node))
            stack.extend(inner)
    return False


def tested_in_turn(stmt: If) -> If:
    """`stmt` with those parts of its condition that read memory inside of the others, which guard them.

    This is what an `If` without an `other` means; one whose parts are all of a kind is the same object.
    """
    parts = conjuncts(stmt.cond)
    if stmt.other is not None or len(parts) == 1:
        return stmt
    reading = tuple(part for part in parts if reads_memory(part))
    before = conjunction(tuple(part for part in parts if not any(part is one for one in reading)))
    return If(before, guarded(reading, stmt.then)) if reading and before is not None else stmt
