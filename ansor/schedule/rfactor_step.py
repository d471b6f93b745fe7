"""The step that makes partial results of a reduction a stage of their own: rfactor.

Source: TVM's auto_scheduler (v0.16) for numbering and names; the transformations are those of Halide's and
TVM's schedules (Suriana et al., CGO 2017).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ansor.schedule.conditions import all_of
from ansor.schedule.derivation import axis_values, loop_extents
from ansor.schedule.extents import Extent, expr_of, in_any_row
from ansor.schedule.layout import layout_attr
from ansor.schedule.naming import code_names, fresh_name
from ansor.schedule.rebuilding import rebuild, redirect, refuse_transformed, unique_name
from ansor.schedule.stages import FuseRelation, IteratorKind, Relation, Stage
from ansor.schedule.step_base import Step, iterator_at, refuse
from ansor.te.expr import (
    INDEX_DTYPE,
    AxisKind,
    Binary,
    BinaryOp,
    Expr,
    IterVar,
    Read,
    Reduce,
    Var,
    substitute,
)
from ansor.te.tensor import ComputeOp

if TYPE_CHECKING:
    from ansor.schedule.state import State


@dataclass(frozen=True, slots=True)
class RfactorStep(Step):
    """Factor a loop out of a reduction: partial results along it become a stage of their own.

    `X.rf` computes, for each value of the factored loop (a spatial axis at `factor_iterator`), the reduction
    over the remaining reduction loops; `X.repl` reduces the partial results. Where a split of the reduction
    does not divide, lanes past the end contribute the identity.
    """

    code: ClassVar[str] = "RF"
    stage: int
    iterator: int
    factor_iterator: int

    @property
    def new_stages(self) -> range:
        return range(self.stage, self.stage + 1)

    def apply(self, state: State) -> State:
        stage, loop = iterator_at(state, self.stage, self.iterator, "rfactor")
        op = stage.compute
        if loop.kind is not IteratorKind.REDUCE:
            raise refuse(
                stage,
                f"rfactor: {loop.name!r} of stage {stage.name!r} is not a reduction loop",
                self.iterator,
            )
        if not 0 <= self.factor_iterator <= len(op.axis):
            raise refuse(
                stage,
                f"rfactor of stage {stage.name!r}: the new axis cannot stand at position "
                f"{self.factor_iterator}; choose one of 0..{len(op.axis)}",
            )
        refuse_transformed(state, self.stage, "rfactor", keeps_reduction=True)
        factored, merge = _factor(state, stage, self.iterator, self.factor_iterator)
        fresh = replace(Stage.of_op(merge, stage.scope), handles=(*stage.handles, merge))
        stages = (
            *state.stages[: self.stage],
            Stage.of_op(factored),
            fresh,
            *state.stages[self.stage + 1 :],
        )
        moved = dict(zip(op.outputs, merge.outputs, strict=True))
        return state.with_stages(rebuild(stages, lambda op: redirect(op, moved)), self.stage)


def _factor(state: State, stage: Stage, position: int, factor_at: int) -> tuple[ComputeOp, ComputeOp]:
    """The partial-result operation and the one that merges it."""
    op, chosen = stage.compute, stage.iterators[position]
    roots = [root for root in op.body if isinstance(root, Reduce)]
    reduce_loops = stage.iterators[len(op.axis) :]
    names, extents = code_names(stage), loop_extents(stage)
    for loop in reduce_loops:
        if loop.name not in extents:
            raise refuse(
                stage,
                f"rfactor of stage {stage.name!r}: set the length of the split of {loop.name!r} first",
                position,
            )

    spatial = tuple(IterVar(a.name, a.dtype, a.extent) for a in op.axis)
    factor = _axis(names[chosen.name], extents[chosen.name], AxisKind.SPATIAL)
    remaining = {
        loop.name: _axis(names[loop.name], extents[loop.name], AxisKind.REDUCE)
        for loop in reduce_loops
        if loop is not chosen
    }
    axes = (*spatial[:factor_at], factor, *spatial[factor_at:])
    # If all of the reduction is factored out, an axis of one iteration stands for "no loop left".
    reduce_axes = tuple(remaining.values()) or (
        _axis(fresh_name(f"{factor.name}_u", {a.name for a in axes}), 1, AxisKind.REDUCE),
    )

    # The terms, which all roots share, and which of them are none: those of lanes past the end.
    values = axis_values(stage.relations, {**remaining, chosen.name: factor}, extents)
    mapping: dict[Var, Expr] = dict(zip(op.axis, spatial, strict=True))
    mapping.update({reduced: values[reduced.name] for reduced in op.reduce_axis})
    terms = roots[0]
    sources = tuple(substitute(source, mapping) for source in terms.sources)
    own = () if terms.condition is None else (terms.condition,)
    padding = _padding_conditions(stage.relations, values, extents)
    condition = all_of(substitute(part, mapping) for part in (*own, *padding))

    body = tuple(Reduce(r.combiner, sources, reduce_axes, r.index, r.dtype, condition) for r in roots)
    name = unique_name(state, op.name, "rf")
    factored = ComputeOp(name, axes, reduce_axes, body, op.tag, dict(op.attrs))
    return factored, _merge(unique_name(state, op.name, "repl"), op, roots, factored, factor_at)


def _merge(
    name: str, op: ComputeOp, roots: Iterable[Reduce], factored: ComputeOp, factor_at: int
) -> ComputeOp:
    """The operation that computes `op` from partial results, by reducing over one of their axes."""
    factor = factored.axis[factor_at]
    merged = IterVar(f"{factor.name}_v", INDEX_DTYPE, factor.extent, AxisKind.REDUCE)
    axes = tuple(IterVar(f"ax{d}", a.dtype, a.extent) for d, a in enumerate(op.axis))
    indices = (*axes[:factor_at], merged, *axes[factor_at:])
    partials = tuple(Read(t, indices, t.dtype) for t in factored.outputs)
    body = tuple(Reduce(r.combiner, partials, (merged,), r.index, r.dtype) for r in roots)
    return ComputeOp(name, axes, (merged,), body, op.tag, layout_attr(op))


def _axis(name: str, extent: Extent, kind: AxisKind) -> IterVar:
    return IterVar(name, INDEX_DTYPE, expr_of(extent), kind)


def _padding_conditions(
    relations: tuple[Relation, ...], values: Mapping[str, Expr], extents: Mapping[str, Extent]
) -> list[Expr]:
    """`loop < extent` for every split loop whose parts cover more than its extent."""
    conditions: list[Expr] = []
    for relation in relations:
        if isinstance(relation, FuseRelation):
            continue
        covered: Any = 1
        for part in relation.parts:
            covered = covered * extents[part]
        extent: Any = extents[relation.parent]
        over = covered > extent
        if isinstance(over, Expr) or in_any_row(over):
            conditions.append(Binary(BinaryOp.LT, values[relation.parent], expr_of(extent), "bool"))
    return conditions
