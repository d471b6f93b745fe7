"""The order in which the blocks of a large grid have their tiles: by groups of rows, so that caches are used.

A GPU begins blocks in the order of their index. Of a product of matrices, its rows and columns of tiles fused
to one index, the blocks that are at work at a time have a row of tiles or a few, and all columns. They read
the whole second operand, which may be more than the common cache holds, and the next ones read it again. So
rows are taken in groups, and all rows of a group before the next column; here four rows by twos:

    0  1  2  3  4  5         0  2  4  6  8 10
    6  7  8  9 10 11    =>   1  3  5  7  9 11
   12 13 14 15 16 17        12 14 16 18 20 22
   18 19 20 21 22 23        13 15 17 19 21 23

As many blocks have fewer rows and columns together then: 128 of a large grid 8 and 16, not 1 and 128. Groups
that are at work as a whole make no difference, and are left alone.

What rows and columns are is read off a kernel. Of its index b, which every tile is computed from, `b % 6` is
the column and `b // 6` the row if something is read that depends on the first and not on the second, and
something the other way round. Of more dimensions, those go with the rows that nothing which depends on
columns alone depends on. Where columns go on outside of the rows, a schedule has groups of its own, which
stay; so do grids of two dimensions. As blocks do not depend on each other, any order is right.

Source: the grouped order of programs in Triton's tutorial on matrix multiplication.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from ansor.ir.kernel_form import open_kernel
from ansor.ir.nest import LoopKind, Stmt, statement_expressions, walk_statements
from ansor.ir.rewriting import map_expressions
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Var,
    children,
    distinct_nodes,
    int_value,
    reached,
    substitute,
)

MOST_ROWS: Final = 8
"""Rows of tiles in a group."""
AT_ONCE: Final = 128
"""Blocks that are at work at a time on a large GPU, or more: groups of fewer make no difference."""

_Part = tuple[int, int]
"""Of an index b, from one place to another: `b % high // low`."""


def order_blocks(kernel: Stmt) -> Stmt:
    """A kernel whose blocks have tiles by groups of rows, if its grid is large and operands are shared."""
    opened = open_kernel(kernel)
    if [loop.kind for loop in opened.blocks] != [LoopKind.BLOCK_X]:
        return kernel
    (loop,) = opened.blocks
    blocks = int_value(loop.extent)
    if blocks is None or blocks <= AT_ONCE:
        return kernel
    rows, columns = _grid(opened.body, loop.var, blocks)
    group = max(size for size in range(1, MOST_ROWS + 1) if rows % size == 0)
    block, area = loop.var, group * columns
    if group == 1 or area <= AT_ONCE:
        return kernel
    tile = block // area * area + block % group * columns + block % area // group
    return opened.around(map_expressions(opened.body, lambda expr: substitute(expr, {block: tile})))


def _grid(body: Stmt, block: Var, blocks: int) -> tuple[int, int]:
    """How many rows and columns of tiles there are, of which operands are shared; 1, 1 for none."""
    exprs = [expr for stmt in walk_statements(body) for expr in statement_expressions(stmt)]
    loads = (node for expr in exprs for node in distinct_nodes(expr) if isinstance(node, Load))
    reads = [_parts(load.indices, block, blocks) for load in loads if load.buffer.scope == "global"]
    places = {1, blocks}.union(*_parts(exprs, block, blocks))
    steps = list(pairwise(sorted(places)))
    if len(steps) < 2 or any(high % low for low, high in steps):
        return 1, 1
    column, row = steps[:2]
    by_columns, by_rows = _along(reads, column, row), _along(reads, row, column)
    if not by_columns or not by_rows:
        return 1, 1
    again = next((step for step in steps[1:] if _changes(by_columns, step)), None)
    if again is not None and not _changes(by_rows, again):
        return 1, 1  # Columns go on outside of the rows: the schedule has groups of its own.
    end = blocks if again is None else again[0]
    return end // column[1], column[1]


def _along(reads: Sequence[set[_Part]], step: _Part, other: _Part) -> list[set[_Part]]:
    """Those of `reads` that change within a step, and not within the other one."""
    return [parts for parts in reads if _has(parts, step) and not _has(parts, other)]


def _changes(reads: Sequence[set[_Part]], step: _Part) -> bool:
    """Whether some of `reads` changes within a step."""
    return any(_has(parts, step) for parts in reads)


def _has(parts: Iterable[_Part], step: _Part) -> bool:
    """Whether some part changes within a step."""
    return any(low < step[1] and step[0] < high for low, high in parts)


def _parts(exprs: Iterable[Expr], block: Var, blocks: int) -> set[_Part]:
    """The parts of an index that expressions depend on."""

    def into(expr: Expr) -> tuple[Expr, ...]:
        return children(expr) if _part(expr, block, blocks) is None else ()

    nodes = (node for expr in exprs for node in reached(expr, into))
    return {part for node in nodes if (part := _part(node, block, blocks)) is not None}


def _part(expr: Expr, block: Var, blocks: int) -> _Part | None:
    """The part of the index that an expression is; None if it is something else."""
    match expr:
        case Var() if expr is block:
            return 1, blocks
        case Binary(op=BinaryOp.FLOORDIV | BinaryOp.FLOORMOD as op, a=a, b=Const(value=by)) if int(by) > 0:
            part = _part(a, block, blocks)
            if part is None:
                return None
            low, high = part
            cut = low * int(by)
            return (min(cut, high), high) if op is BinaryOp.FLOORDIV else (low, min(high, cut))
        case _:
            return None
