"""Tiles in shared memory whose rows are stored in different orders (`ansor.ir.swizzles`).

Every access to such a tile is moved to where its element lies, which changes its last index alone:

    S[i, k]    =>    S[i, ((k//4) xor (i//2)%4)*4 + k%4]        (rows of 16 elements of 4 bytes)

Nothing else of the program knows of it, so this comes last of what looks at indices. A tile whose rows do not
have the right length, or are padded, stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ansor.dtypes import dtype_info
from ansor.ir.bounds import Bounds
from ansor.ir.kernel_form import open_kernel
from ansor.ir.nest import Alloc, Buffer, Stmt, Store
from ansor.ir.ranges import loop_ranges
from ansor.ir.rewriting import map_expressions, map_statements
from ansor.ir.shared_memory import shared_buffers
from ansor.ir.simplify import simplify
from ansor.ir.swizzles import PIECE, can_swizzle, turns
from ansor.te.buffer import row_major_strides
from ansor.te.expr import INDEX_DTYPE, Expr, Load, cast, const, rewrite


def swizzle(kernel: Stmt, bounds: Bounds) -> Stmt:
    """
    Move the accesses of a kernel to its swizzled tiles to where their elements lie.

    Parameters
    ----------
    kernel
        A kernel with its barriers.
    bounds
        Ranges of the symbolic sizes.
    """
    opened = open_kernel(kernel)
    marked = [buffer for buffer in shared_buffers(opened.body) if buffer.swizzled]
    if not marked:
        return kernel
    made = opened.around(_moved(opened.body, {buffer: replace(buffer, swizzled=False) for buffer in marked}))
    known = bounds.extended(loop_ranges(made))
    return map_expressions(made, lambda expr: simplify(expr, known))


def _moved(stmt: Stmt, tiles: Mapping[Buffer, Buffer]) -> Stmt:
    """A statement with its accesses to tiles moved, in place of which others stand."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.buffer in tiles:
            return Load(tiles[node.buffer], _place(node.buffer, node.indices), node.dtype)
        return None

    def expr(old: Expr) -> Expr:
        return rewrite(old, visit)

    def inside(inner: Stmt) -> Stmt:
        inner = map_statements(inner, inside)
        match inner:
            case Alloc(buffer=buffer, body=body) if buffer in tiles:
                return Alloc(tiles[buffer], body)
            case Store(buffer=buffer, indices=indices, value=value) if buffer in tiles:
                return Store(tiles[buffer], _place(buffer, indices), value)
            case _:
                return inner

    return inside(map_expressions(stmt, expr))


def _place(tile: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The indices of where an element lies."""
    size, shape = dtype_info(tile.dtype).bytes, tile.constant_shape
    padded = tile.strides not in (None, row_major_strides(shape))
    if padded or not shape or not can_swizzle(shape[-1], size):
        return indices
    lanes, (rows, orders) = PIECE // size, turns(shape[-1], size)
    indices = tuple(cast(index, INDEX_DTYPE) for index in indices)
    row: Expr = const(0)
    for index, extent in zip(indices[:-1], shape[:-1], strict=True):
        row = row * extent + index
    turn = row // int(rows) % int(orders)
    piece = indices[-1] // lanes ^ turn
    return (*indices[:-1], piece * lanes + indices[-1] % lanes)
