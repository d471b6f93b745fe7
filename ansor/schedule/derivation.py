"""What splits and fusions make of a stage's axes: how long all loops are, and axes in terms of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansor.schedule.extents import Extent, expr_of, extent_of, is_one, product
from ansor.schedule.loop_steps import part_extents
from ansor.schedule.stages import FuseRelation, Relation, Stage
from ansor.schedule.step_base import refuse_uncountable
from ansor.te.expr import INDEX_DTYPE, Binary, BinaryOp, Expr


def loop_extents(stage: Stage) -> dict[str, Extent]:
    """Extents of all loops that the stage has or has had, by name, from its axes' full extents.

    Those that depend on a length left open are not among them.

    Raises
    ------
    ScheduleError
        If a loop, or what the parts of one cover, is more than int32 counts.
    """
    op = stage.compute
    extents: dict[str, Extent] = {a.name: extent_of(a.extent) for a in (*op.axis, *op.reduce_axis)}
    for relation in stage.relations:
        if isinstance(relation, FuseRelation):
            if all(parent in extents for parent in relation.parents):
                extents[relation.fused] = product([extents[parent] for parent in relation.parents])
                refuse_uncountable(stage, relation.fused, extents[relation.fused])
            continue
        made = part_extents(extents.get(relation.parent), relation.lengths, relation.inner_to_outer)
        covered = product([extent for extent in made if extent is not None])
        refuse_uncountable(stage, relation.parent, covered)
        parts = zip(relation.parts, made, strict=True)
        extents.update({part: extent for part, extent in parts if extent is not None})
    return extents


def _times(expr: Expr, stride: Extent) -> Expr:
    """`expr * stride`, where the stride may be a column."""
    if is_one(stride):
        return expr
    return Binary(BinaryOp.MUL, expr, expr_of(stride), INDEX_DTYPE)


def axis_values(
    relations: tuple[Relation, ...], leaves: dict[str, Expr], extents: Mapping[str, Extent]
) -> dict[str, Expr]:
    """Every loop of a derivation, axes included, as an expression of the leaf loops.

    `extents` are those of all loops by name. Values of split loops may exceed the loop's extent where
    factors do not divide.
    """
    values = dict(leaves)
    for relation in reversed(relations):
        if isinstance(relation, FuseRelation):
            fused, inner = values[relation.fused], 1
            for position in range(len(relation.parents) - 1, -1, -1):
                parent = relation.parents[position]
                extent = extents[parent]
                value = (
                    fused if is_one(inner) else Binary(BinaryOp.FLOORDIV, fused, expr_of(inner), INDEX_DTYPE)
                )
                if position > 0:
                    value = Binary(BinaryOp.FLOORMOD, value, expr_of(extent), INDEX_DTYPE)
                values[parent] = value
                inner = inner * extent  # type: ignore[assignment]
        else:
            total: Expr | None = None
            stride: Any = 1
            for part in reversed(relation.parts):
                term = _times(values[part], stride)
                total = term if total is None else Binary(BinaryOp.ADD, term, total, INDEX_DTYPE)
                stride = stride * extents[part]
            assert total is not None
            values[relation.parent] = total
    return values
