"""How far an index moves when a variable goes one up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from ansor.ir.affine import Affine, add, scaled
from ansor.ir.bounds import Bounds
from ansor.te.buffer import Buffer
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Expr,
    Var,
    children,
    const,
    distinct_nodes,
    free_vars,
    int_value,
)

if TYPE_CHECKING:
    from ansor.ir.simplifier import Simplifier

MOST_APART: Final = 4
"""Lanes so many elements apart at most are loaded as whole vectors and shuffled; so are stores."""


def coefficient(expr: Expr, var: Var) -> int | None:
    """The factor of `var` in an index that is linear in it; None if it is not seen to be linear."""
    found: dict[int, int | None] = {}
    depends: set[int] = set()
    for node in distinct_nodes(expr):
        if node is var:
            found[id(node)] = 1
        elif depends.isdisjoint(map(id, children(node))):
            found[id(node)] = 0
            continue
        else:
            found[id(node)] = _combined(node, [found[id(child)] for child in children(node)])
        depends.add(id(node))
    return found[id(expr)]


def _combined(node: Expr, factors: list[int | None]) -> int | None:
    """The factor of a variable in a node, given those in its children, one of which depends on it."""
    if not isinstance(node, Binary):
        return None
    a, b = factors
    if a is None or b is None:
        return None
    if node.op is BinaryOp.ADD:
        return a + b
    if node.op is BinaryOp.SUB:
        return a - b
    if node.op is BinaryOp.MUL:
        scale = int_value(node.b) if b == 0 else int_value(node.a)
        return None if scale is None else scale * (a + b)
    return None


def step_of(buffer: Buffer, indices: Sequence[Expr], var: Var) -> int | None:
    """How far apart in memory the elements of consecutive values of `var` are; None if that is not seen."""
    step: int | None = 1
    distance = 0
    for dim in reversed(range(len(indices))):
        if buffer.strides is not None:
            step = buffer.strides[dim]
        factor = coefficient(indices[dim], var)
        if factor is None or (factor and step is None):
            return None
        distance += factor * (step or 0)
        extent = int_value(buffer.shape[dim])
        step = None if step is None or extent is None else step * extent
    return distance


def runs_along(buffer: Buffer, indices: Sequence[Expr], var: Var, bounds: Bounds) -> bool:
    """Whether consecutive values of `var` are consecutive elements, along the last dimension first.

    Indices may be pieces of one number, as fused loops leave them: `B[f // 36, f % 36]` runs along `f` if the
    rows of `B` have 36 elements. `bounds` hold all variables of the indices.
    """
    return bool(indices) and var in free_vars(indices[-1]) and even_step(buffer, indices, var, bounds) == 1


def even_step(buffer: Buffer, indices: Sequence[Expr], var: Var, bounds: Bounds) -> int | None:
    """How far apart in memory the elements of consecutive values of `var` are; None if not all alike.

    Unlike `step_of` it sees through pieces of one number. `bounds` hold all variables of the indices.
    """
    flat = flat_form(bounds.simplifier, buffer, indices, var)
    if flat is None:
        return None
    step = 0
    for number, factor in flat.terms.items():
        node = bounds.simplifier.table.atoms[number].node
        if node is var:
            step = factor
        elif var in free_vars(node):
            return None
    return step


def places_along(
    buffer: Buffer, indices: Sequence[Expr], var: Var, extent: int, bounds: Bounds
) -> list[int] | None:
    """How far from the first in memory the elements of the first `extent` values of `var` are.

    Quotients and remainders may be in it, of `var` alone; None for others.
    """
    table = bounds.simplifier.table
    flat = flat_form(bounds.simplifier, buffer, indices, var)
    if flat is None:
        return None
    moving = {n: factor for n, factor in flat.terms.items() if var in free_vars(table.atoms[n].node)}

    def value(form: Affine, at: int) -> int | None:
        total = form.const
        for number, factor in form.terms.items():
            atom = table.atoms[number]
            inner = at if atom.node is var else None
            if atom.base is not None and (base := value(atom.base, at)) is not None:
                quotient = base // atom.divisor
                inner = quotient % atom.modulus if atom.modulus else quotient
            if inner is None:
                return None
            total += inner * factor
        return total

    places = [value(Affine(moving, 0), at) for at in range(extent)]
    known = [place for place in places if place is not None]
    return [place - known[0] for place in known] if len(known) == extent else None


def flat_form(
    simplifier: Simplifier, buffer: Buffer, indices: Sequence[Expr], var: Var | None = None
) -> Affine | None:
    """The number of the element in memory, quotients and their remainders put together again.

    None where a stride that is not known matters; with `var` given, strides of indices that do not depend
    on it do not matter. Neither do those of indices that are all the pieces of one number, as loops over
    symbolic extents that were fused leave them.
    """
    total = Affine({}, 0)
    step: int | None = 1
    for dim in reversed(range(len(indices))):
        if buffer.strides is not None:
            step = buffer.strides[dim]
        if step is not None:
            total = add(total, scaled(simplifier.affine(indices[dim]), step))
        elif var is None or var in free_vars(indices[dim]):
            return whole_number(simplifier, buffer, indices)
        extent = int_value(buffer.shape[dim])
        step = None if step is None or extent is None else step * extent
    return simplifier.table.recombined(total, "int64")


def whole_number(simplifier: Simplifier, buffer: Buffer, indices: Sequence[Expr]) -> Affine | None:
    """The number that all indices are pieces of: `x` of `B[x // (m*3), x // 3 % m, x % 3]`."""
    shape = [extent if isinstance(extent, Expr) else const(extent) for extent in buffer.shape]
    last = max(dim for dim, extent in enumerate(buffer.shape) if int_value(extent) is None)
    piece = simplifier.canonical(indices[last])
    if buffer.strides is not None or not isinstance(piece, Binary) or piece.op is not BinaryOp.FLOORMOD:
        return None
    steps = [prod(int_value(extent) or 0 for extent in shape[dim + 1 :]) for dim in range(last, len(shape))]
    total = Affine({}, 0)
    for index, step in zip((piece.a, *indices[last + 1 :]), steps, strict=True):
        total = add(total, scaled(simplifier.affine(index), step))
    total = simplifier.table.recombined(total, piece.dtype)
    if not simplifier.table.fits(total, piece.dtype):
        return None
    stride: Expr = const(1)
    for dim in range(len(shape) - 1, -1, -1):
        own = simplifier.table.build(total, piece.dtype) // stride
        if dim:
            own, stride = own % shape[dim], stride * shape[dim]
        if simplifier.affine(own).key() != simplifier.affine(indices[dim]).key():
            return None
    return total
