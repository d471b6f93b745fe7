"""The step that multiplies out a sum of products of sums: the distributive law.

Quantised products subtract zero points from what they multiply,

    C[i, j] = sum over k of (A[i, k] - a) * (B[k, j] - b[j])

where a and b[j] do not depend on k. That is, with K terms,

    C.left[i]        = sum over k of A[i, k]
    C.right[j]       = sum over k of B[k, j]
    C.products[i, j] = sum over k of A[i, k] * B[k, j]
    C[i, j]          = C.products[i, j] - a * C.right[j] - b[j] * C.left[i] + K * a * b[j]

and the products are what instructions multiply and add up (`ansor.intrinsics`). Integers wrap, so both give
the same numbers, overflow or not. Sums have the axes that they depend on.

Not in TVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ansor.dtypes import is_integer
from ansor.intrinsics.pattern import product_of
from ansor.schedule.layout import layout_attr
from ansor.schedule.rebuilding import rebuild, redirect, refuse_transformed, unique_name
from ansor.schedule.stages import Stage
from ansor.schedule.step_base import Step, refuse, stage_at
from ansor.te.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    IterVar,
    Read,
    Reduce,
    Var,
    binary,
    const,
    free_vars,
    int_value,
    substitute,
    wrap_int,
)
from ansor.te.tensor import ComputeOp

if TYPE_CHECKING:
    from ansor.schedule.state import State


class Factor(NamedTuple):
    """A factor as a sum: what depends on the reduction, and what does not, None if that is nothing."""

    varying: Expr
    constant: Expr | None


@dataclass(frozen=True, slots=True)
class DistributeStep(Step):
    """Multiply a sum of products out over the constant terms of `factors`: 0 is the left one, 1 the right.

    For 0 the sum of the right factor becomes a stage, `X.right`, for 1 `X.left`. They take X's position,
    behind them come `X.products`, and X, which adds up their results.
    """

    code: ClassVar[str] = "DIST"
    in_reference: ClassVar[bool] = False
    stage: int
    factors: tuple[int, ...]

    @property
    def new_stages(self) -> range:
        return range(self.stage, self.stage + len(self.factors) + 1)

    def apply(self, state: State) -> State:
        stage = stage_at(state, self.stage, "distribute")
        op, what = stage.compute, f"distribute of stage {stage.name!r}"
        known = distributable(op)
        if not known:
            raise refuse(
                stage,
                f"{what}: it is no sum, over axes whose extents are numbers, of products of integers of "
                "which a factor is `x + c` or `x - c`, where x depends on the reduction and c does not",
            )
        if self.factors not in (known, *((number,) for number in known)):
            raise refuse(
                stage,
                f"{what} over factors {list(self.factors)}: those with a constant term are {list(known)}; "
                "name each once, in order",
            )
        refuse_transformed(state, self.stage, "distribute")
        made, total = _multiplied_out(state, op, self.factors)
        fresh = replace(Stage.of_op(total, stage.scope), handles=(*stage.handles, total))
        stages = (
            *state.stages[: self.stage],
            *map(Stage.of_op, made),
            fresh,
            *state.stages[self.stage + 1 :],
        )
        moved = dict(zip(op.outputs, total.outputs, strict=True))
        return state.with_stages(rebuild(stages, lambda op: redirect(op, moved)), self.stage, len(made))


def distributable(op: ComputeOp) -> tuple[int, ...]:
    """The factors that have constant terms beside others, of a sum of products of integers; else none."""
    factors = product_of(op, converted=False)
    if factors is None or not is_integer(op.output(0).dtype):
        return ()
    if any(int_value(axis.extent) is None for axis in op.reduce_axis):
        return ()
    return tuple(n for n, factor in enumerate(factors) if _parts(factor, op).constant is not None)


def _parts(factor: Expr, op: ComputeOp) -> Factor:
    """Take the terms off a factor that do not depend on the reduction, as long as one of two is such."""
    constant: Expr = const(0, factor.dtype)
    while isinstance(factor, Binary) and factor.op in (BinaryOp.ADD, BinaryOp.SUB):
        a, b = (free_vars(side).isdisjoint(op.reduce_axis) for side in (factor.a, factor.b))
        if b and not a:
            constant, factor = binary(factor.op, constant, factor.b), factor.a
        elif a and not b and factor.op is BinaryOp.ADD:
            constant, factor = constant + factor.a, factor.b
        else:
            break
    return Factor(factor, None if int_value(constant) == 0 else constant)


def _multiplied_out(
    state: State, op: ComputeOp, factors: tuple[int, ...]
) -> tuple[list[ComputeOp], ComputeOp]:
    """The operations of the new stages, and the one that adds up their results."""
    whole, dtype = product_of(op, converted=False), op.output(0).dtype
    assert whole is not None
    left, right = (
        _parts(factor, op) if number in factors else Factor(factor, None)
        for number, factor in enumerate(whole)
    )
    names = {suffix: unique_name(state, op.name, suffix) for suffix in ("products", "right", "left")}
    term = left.varying * right.varying
    products = _summed(op, op.axis, term, names["products"], op.attrs)
    total: Expr = Read(products.output(0), op.axis, dtype)
    sums: list[ComputeOp] = []
    for other, constant, suffix in ((right, left.constant, "right"), (left, right.constant, "left")):
        if constant is not None:
            used = free_vars(other.varying)
            axes = tuple(axis for axis in op.axis if axis in used)
            sums.append(_summed(op, axes, other.varying, names[suffix], {}))
            total = total + constant * Read(sums[-1].output(0), axes, dtype)
    if left.constant is not None and right.constant is not None:
        count = prod(int_value(axis.extent) or 1 for axis in op.reduce_axis)
        total = total + left.constant * right.constant * Const(wrap_int(count, dtype), dtype)
    merged = ComputeOp(op.name, op.axis, (), (total,), op.tag, layout_attr(op))
    return [*sums, products], merged


def _summed(
    op: ComputeOp, axes: tuple[IterVar, ...], term: Expr, name: str, attrs: Mapping[str, Any]
) -> ComputeOp:
    """The reduction of an operation, but of another term, and for some of its axes."""
    old = (*axes, *op.reduce_axis)
    new = tuple(replace(axis) for axis in old)
    mapping: dict[Var, Expr] = dict(zip(old, new, strict=True))
    spatial, reduced = new[: len(axes)], new[len(axes) :]
    (root,) = op.body
    assert isinstance(root, Reduce)
    body = replace(root, sources=(substitute(term, mapping),), axes=reduced)
    return ComputeOp(name, spatial, reduced, (body,), op.tag, dict(attrs))
