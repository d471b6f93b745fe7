"""How far the index arithmetic of a kernel counts, which is that of int32 and does not wrap.

For constant sizes schedules see to it; for symbolic ones only a call can tell. So of every sum and product in
a guard, an index or an extent this gives a bound as a dimension (`ansor.ir.dims`), which whoever launches the
kernel compares with what int32 holds. What is stored may wrap, as all integers of te do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from ansor.codegen.c.program import Kernel
from ansor.ir.dims import Dim
from ansor.ir.kernel_form import BLOCK_KINDS, THREAD_KINDS
from ansor.ir.nest import For, If, Let, Stmt, Store, walk_statements
from ansor.ir.rewriting import reads_memory
from ansor.te.expr import (
    FOLDERS,
    INDEX_DTYPE,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Select,
    Var,
    children,
    distinct_nodes,
    int_value,
    memoised,
    reached,
)

_GROWING: Final = (BinaryOp.ADD, BinaryOp.MUL)
_BOUNDED_BY_BOTH: Final = (*_GROWING, BinaryOp.MIN, BinaryOp.MAX)


def counts(kernel: Kernel, names: Mapping[Var, str]) -> tuple[Dim, ...]:
    """List what a kernel counts to at most, as far as that depends on the sizes, which have these names."""
    most = _Most(kernel, names)
    found: dict[Dim, None] = {}
    for stmt in walk_statements(kernel.body):
        match stmt:
            case For(var=var, extent=extent):
                most.bind_loop(var, extent)
            case Let(var=var, value=value):
                most.bind(var, value)
            case _:
                pass
        for expr in _counting(stmt):
            found |= dict.fromkeys(most.sums_in(expr))
    return tuple(found)


def _counting(stmt: Stmt) -> Iterator[Expr]:
    """The expressions of a statement that say how often and where."""
    match stmt:
        case For(extent=Expr() as extent):
            yield extent
        case If(cond=cond):
            yield cond
        case Store(indices=indices, value=value):
            yield from indices
            yield from _reading(value)
        case Let(value=value):
            yield from _reading(value)
        case _:
            pass


def _reading(value: Expr) -> Iterator[Expr]:
    """The expressions of a value that say where memory is read, and whether."""
    for node in distinct_nodes(value):
        match node:
            case Load(indices=indices):
                yield from indices
            case Select(cond=cond, then=then, other=other, lazy=True):
                if reads_memory(then) or reads_memory(other):
                    yield cond
            case _:
                pass


class _Most:
    """Numbers that expressions do not exceed, 0 at least, as dimensions; None where nobody knows."""

    def __init__(self, kernel: Kernel, names: Mapping[Var, str]) -> None:
        self._known: dict[Var, Dim | None] = dict(names)
        kinds = (*reversed(BLOCK_KINDS), *reversed(THREAD_KINDS))
        extents = dict(zip(kinds, (*kernel.grid, *kernel.block), strict=True))
        for kind, var in kernel.variables.items():
            self.bind_loop(var, extents[kind])

    def bind_loop(self, var: Var, extent: int | Expr) -> None:
        """Let a variable count up to an extent."""
        last = extent if isinstance(extent, int) else self._of(extent)
        self._known[var] = None if last is None else _computed("sub", last, 1)

    def bind(self, var: Var, value: Expr) -> None:
        """Let a variable stand for a value."""
        self._known[var] = self._of(value)

    def sums_in(self, expr: Expr) -> list[Dim]:
        """Of the sums and products in an expression that are no parts of others, where that takes sizes."""
        known: dict[int, tuple[Expr, Dim | None]] = {}
        found: list[Dim] = []

        def into(node: Expr) -> tuple[Expr, ...]:
            grows = isinstance(node, Binary) and node.dtype == INDEX_DTYPE and node.op in _GROWING
            most = memoised(node, self._of_node, known) if grows else None
            if most is None:
                return children(node)
            found.append(most)
            return ()

        for _ in reached(expr, into):
            pass
        return [most for most in found if not isinstance(most, int)]

    def _of(self, expr: Expr) -> Dim | None:
        return memoised(expr, self._of_node)

    def _of_node(self, expr: Expr, most: Callable[[Expr], Dim | None]) -> Dim | None:
        match expr:
            case Const(value=value):
                return max(int(value), 0)
            case Var():
                return self._known.get(expr)
            case Binary(op=BinaryOp.SUB, a=a):
                return most(a)
            case Binary(op=BinaryOp.FLOORDIV, a=a, b=b):
                return _both("floordiv", most(a), max(int_value(b) or 1, 1))
            case Binary(op=BinaryOp.FLOORMOD, b=b):
                divisor = most(b)
                return None if divisor is None else _computed("sub", divisor, 1)
            case Binary(op=op, a=a, b=b) if op in _BOUNDED_BY_BOTH:
                return _both(str(op), most(a), most(b))
            case Select(then=then, other=other):
                return _both("max", most(then), most(other))
            case _:
                return None


def _both(op: str, a: Dim | None, b: Dim | None) -> Dim | None:
    return None if a is None or b is None else _computed(op, a, b)


def _computed(op: str, a: Dim, b: Dim) -> Dim:
    """An operation on dimensions; its result if that is known."""
    if isinstance(a, int) and isinstance(b, int):
        return int(FOLDERS[BinaryOp(op)](a, b))
    if b == (1 if op in ("mul", "floordiv") else 0) and op in ("add", "sub", "mul", "floordiv"):
        return a
    return op, a, b
