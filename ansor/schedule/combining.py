"""Taking values into the elements of a reduction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ansor.errors import LoweringError
from ansor.ir.bounds import Bounds
from ansor.ir.code_size import value_bits
from ansor.ir.nest import Alloc, Buffer, For, LoopKind, Stmt, Store, seq
from ansor.ir.registers import RegisterLimits
from ansor.ir.rewriting import replace_in, simultaneous
from ansor.ir.simplify import simplify
from ansor.ir.strides import step_of
from ansor.te.expr import Expr, Load, Reduce, Var, const, distinct_nodes, free_vars, rewrite

Targets = Sequence[tuple[Buffer, tuple[Expr, ...]]]
"""The elements that the outputs of a reduction are stored to, one for each."""


def combined(roots: Sequence[Reduce], targets: Targets, values: Sequence[Expr], bounds: Bounds) -> Stmt:
    """
    Combine values with what elements hold, and store the results there.

    Parameters
    ----------
    roots
        The reduction's expressions, one per target.
    values
        One for each argument of the combiner.
    bounds
        Of the variables in targets and values.
    """
    combiner = roots[0].combiner
    mapping: dict[Var, Expr] = dict(zip(combiner.rhs, values, strict=True))
    by_index = {root.index: target for root, target in zip(roots, targets, strict=True)}
    for index, var in enumerate(combiner.lhs):
        if index not in by_index:
            raise LoweringError(f"output {index} of a multi-output reduction is not stored")
        buffer, indices = by_index[index]
        mapping[var] = Load(buffer, indices, buffer.dtype)
    results = [simplify(_replaced(combiner.result[root.index], mapping), bounds) for root in roots]
    return simultaneous([Store(b, i, v) for (b, i), v in zip(targets, results, strict=True)])


def fit_a_vector(
    targets: Targets, values: Sequence[Expr], var: Var, extent: int, limits: RegisterLimits
) -> bool:
    """Whether values of `extent` iterations `var` lie along memory and fit a vector, as the targets do."""
    steps = {
        step_of(node.buffer, node.indices, var)
        for value in values
        for node in distinct_nodes(value)
        if isinstance(node, Load) and var in free_vars(node)
    }
    longest = limits.vector_bits // max(value_bits(buffer.dtype) for buffer, _ in targets)
    return steps == {1} and 4 <= extent <= longest


def combined_in_halves(
    roots: Sequence[Reduce], targets: Targets, values: Sequence[Expr], var: Var, extent: int, bounds: Bounds
) -> Stmt:
    """
    Combine the values of all iterations of a loop in a vector, of which halves are combined then.

    Parameters
    ----------
    roots
        The reduction's expressions, one per target.
    targets
        Elements that get the result, whatever they held.
    values
        One for each argument of the combiner, of the iteration `var`.
    var, extent
        Of the loop.
    bounds
        Of the variables in targets and values.
    """
    lanes = [Buffer(f"{buffer.name}.lanes", buffer.dtype, (extent,), "register") for buffer, _ in targets]

    def each(count: int, stored: Callable[[Expr], Stmt]) -> Stmt:
        lane = Var(var.name, var.dtype)
        return For(lane, count, LoopKind.VECTORIZED, stored(lane)) if count > 1 else stored(const(0))

    def taken(lane: Expr) -> Stmt:
        own = [replace_in(value, {var: lane}, {}) for value in values]
        return seq(*(Store(buffer, (lane,), value) for buffer, value in zip(lanes, own, strict=True)))

    def folded(lane: Expr, far: int) -> Stmt:
        other = simplify(lane + far, bounds)
        loads = [Load(buffer, (other,), buffer.dtype) for buffer in lanes]
        return combined(roots, [(buffer, (lane,)) for buffer in lanes], loads, bounds)

    steps = [each(extent, taken)]
    while extent > 1:
        half = 1 << (extent - 1).bit_length() - 1
        steps.append(each(extent - half, partial(folded, far=half)))
        extent = half
    results = [Load(buffer, (const(0),), buffer.dtype) for buffer in lanes]
    stmt = seq(*steps, *(Store(*target, value) for target, value in zip(targets, results, strict=True)))
    for buffer in reversed(lanes):
        stmt = Alloc(buffer, stmt)
    return stmt


def _replaced(expr: Expr, mapping: Mapping[Var, Expr]) -> Expr:
    """Variables replaced without any folding (float arithmetic stays as written)."""

    def visit(node: Expr) -> Expr | None:
        return mapping.get(node) if isinstance(node, Var) else None

    return rewrite(expr, visit)
