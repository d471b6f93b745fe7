"""The steps that add a stage: cache_read, cache_write, rfactor.

They rebuild operations: a new one is inserted, the operation it serves gets a new body, and everything
downstream is rebuilt to read the new tensors. The schedule's own graph (`State.dag`) never changes; the
rebuilt operations live in the state's stages, whose `handles` keep earlier tensors usable as names.

Source: TVM's auto_scheduler (v0.16) for numbering and names; the transformations are those of Halide's and
TVM's schedules (Suriana et al., CGO 2017, for rfactor).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ansor.errors import ScheduleError
from ansor.schedule.attributes import renamed_tiles
from ansor.schedule.conditions import all_of
from ansor.schedule.extents import Extent, expr_of, extent_of, is_one, product
from ansor.schedule.layout import layout_attr
from ansor.schedule.loop_steps import part_extents
from ansor.schedule.naming import code_names, fresh_name
from ansor.schedule.stages import Annotation, ComputeAt, FuseRelation, IteratorKind, Relation, Stage
from ansor.schedule.step_base import Step, any_stage_at, iterator_at, refuse, refuse_uncountable, stage_at
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
    distinct_nodes,
    free_vars,
    rewrite,
    substitute,
)
from ansor.te.tensor import ComputeOp, Operation, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State

SCOPES = ("local", "shared", "global")


def check_scope(what: str, scope: str) -> None:
    """Refuse what is no scope; `what` names the request."""
    if scope not in SCOPES:
        raise ScheduleError(f"{what}: unknown scope {scope!r}; use one of {', '.join(map(repr, SCOPES))}")


Change = Callable[[Expr], Expr | None]
"""What becomes of a node, as `rewrite` asks for it; None if it stays."""


def reread(op: Operation, tensors: Container[Tensor], change: Change) -> Operation:
    """`op` with the nodes of its body changed if it reads some of `tensors`; itself if it reads none."""
    if not isinstance(op, ComputeOp) or not any(t in tensors for t in op.input_tensors):
        return op
    return replace_body(op, rewrite_body(op, lambda expr: rewrite(expr, change)))


def redirect(op: Operation, tensors: Mapping[Tensor, Tensor]) -> Operation:
    """`op` reading other tensors, at the same indices."""

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor in tensors:
            return Read(tensors[node.tensor], node.indices, node.dtype)
        return None

    return reread(op, tensors, change)


def rewrite_body(op: ComputeOp, change: Callable[[Expr], Expr]) -> tuple[Expr, ...]:
    """The body with its expressions changed; the outputs of one reduction keep sharing their sources."""
    shared: dict[int, tuple[Expr, ...]] = {}
    body: list[Expr] = []
    for root in op.body:
        if isinstance(root, Reduce):
            sources = shared.setdefault(id(root.sources), tuple(map(change, root.sources)))
            condition = None if root.condition is None else change(root.condition)
            same = all(map(is_, (*sources, condition), (*root.sources, root.condition)))
            body.append(root if same else replace(root, sources=sources, condition=condition))
        else:
            body.append(change(root))
    return tuple(body)


def replace_body(op: ComputeOp, body: tuple[Expr, ...]) -> ComputeOp:
    """The operation with another body over the same axes."""
    return ComputeOp(op.name, op.axis, op.reduce_axis, body, op.tag, op.attrs)


def rebuild(
    stages: tuple[Stage, ...],
    change: Callable[[Operation], Operation],
    readers: Container[int] | None = None,
) -> tuple[Stage, ...]:
    """Stages with what `readers` (default: all) compute changed, and all that depends on them rebuilt."""
    moved: dict[Tensor, Tensor] = {}
    result = []
    for position, stage in enumerate(stages):
        op = redirect(stage.op, moved)
        if readers is None or position in readers:
            op = change(op)
        if op is not stage.op:
            moved.update(zip(stage.op.outputs, op.outputs, strict=True))
            stage = stage.with_op(op)
        result.append(stage)
    return tuple(result)


def _unique_name(state: State, base: str, suffix: str) -> str:
    """`base.suffix`, or `base.d.suffix` and so on while that name is taken."""
    taken = {stage.name for stage in state.stages}
    while f"{base}.{suffix}" in taken:
        base += ".d"
    return f"{base}.{suffix}"


@dataclass(frozen=True, slots=True)
class CacheReadStep(Step):
    """Copy a stage's result into `scope` for some of its readers.

    The new stage `X.scope` comes right after X and is read by `readers` instead of X.
    """

    code: ClassVar[str] = "CHR"
    stage: int
    scope: str
    readers: tuple[int, ...]

    def apply(self, state: State) -> State:
        check_scope("cache_read", self.scope)
        return insert_copy(state, self.stage, self.scope, self.scope, self.readers, "cache_read")


@dataclass(frozen=True, slots=True)
class CacheReadPartStep(CacheReadStep):
    """Copy a stage's result into `scope` for some of the reads of one reader.

    Reads are of one kind if they are along the same axes of the reader; those of the `part`-th kind, in the
    order in which the kinds appear, read the copy. So a product with its own transpose, `A[i, k] * A[j, k]`,
    may have a copy for its rows (part 0) and another for its columns: part 1, or part 0 once the rows have
    theirs, as reads of copies do not count.
    """

    code: ClassVar[str] = "CHRP"
    in_reference: ClassVar[bool] = False
    part: int

    def apply(self, state: State) -> State:
        check_scope("cache_read", self.scope)
        return insert_copy(
            state, self.stage, self.scope, self.scope, self.readers, "cache_read", part=self.part
        )


def insert_copy(
    state: State,
    stage_id: int,
    suffix: str,
    scope: str,
    readers: Iterable[int],
    what: str,
    *,
    part: int | None = None,
) -> State:
    """Insert a stage `X.suffix` behind X that copies its result into `scope`; `readers` read the copy.

    With a `part` only the reads of that kind do (`CacheReadPartStep`).

    Raises
    ------
    ScheduleError
        If there is no such stage, it has several outputs, or a reader does not read it, or has no such part;
        `what` names the request.
    """
    wanted = tuple(readers)
    source = any_stage_at(state, stage_id, what)
    if source.op.num_outputs != 1:
        raise ScheduleError(f"{what}: stage {source.name!r} has several outputs; cache one of its readers")
    tensor = source.op.output(0)
    for reader in wanted:
        found = stage_at(state, reader, what)
        if tensor not in found.compute.input_tensors:
            raise refuse(found, f"{what}: stage {found.name!r} does not read {source.name!r}")
    if not wanted:
        raise ScheduleError(f"{what} of {source.name!r}: name at least one reader")
    along = None if part is None else _along_part(state, tensor, wanted, part, what)
    axes = tuple(IterVar(f"ax{d}", INDEX_DTYPE, expr_of(e)) for d, e in enumerate(tensor.shape))
    copy = ComputeOp(_unique_name(state, source.name, suffix), axes, (), (Read(tensor, axes, tensor.dtype),))
    at = stage_id + 1
    moved = {r + 1 if r >= at else r for r in wanted}
    stages = (*state.stages[:at], Stage.of_op(copy, scope), *state.stages[at:])

    def change(node: Expr) -> Expr | None:
        if isinstance(node, Read) and node.tensor is tensor and (along is None or along == _along(node)):
            return Read(copy.output(0), node.indices, node.dtype)
        return None

    return state.with_stages(rebuild(stages, lambda op: reread(op, (tensor,), change), moved), at)


def _along(read: Read) -> frozenset[Var]:
    """The axes along which a tensor is read: what makes reads of one kind."""
    return frozenset(free_vars(*read.indices))


def _along_part(
    state: State, tensor: Tensor, readers: tuple[int, ...], part: int, what: str
) -> frozenset[Var]:
    """The axes of reads of the `part`-th kind; refuse several readers, and a part that is not."""
    reader = state.stages[readers[0]]
    if len(readers) > 1:
        raise refuse(reader, f"{what} of a part of the reads: name one reader, found {len(readers)}")
    reads = (node for root in reader.compute.body for node in distinct_nodes(root) if isinstance(node, Read))
    kinds = list(dict.fromkeys(_along(read) for read in reads if read.tensor is tensor))
    if not 0 <= part < len(kinds):
        raise refuse(
            reader,
            f"{what}: stage {reader.name!r} reads {tensor.name!r} itself along {len(kinds)} sets of "
            f"axes, found part {part}; parts are numbered from 0",
        )
    return kinds[part]


def refuse_transformed(state: State, stage_id: int, what: str, *, keeps_reduction: bool = False) -> None:
    """Refuse a stage of which a new stage would lose something: its place, loops, annotations or pragmas.

    With `keeps_reduction` splits, fuses and the order of reduction loops are kept.
    """
    stage = state.stages[stage_id]
    op, advice = stage.compute, f"apply {what} first"
    what = f"{what} of stage {stage.name!r}"
    found = _settings(stage)
    if found:
        raise refuse(stage, f"{what}: {found}; {advice}")
    axes = [axis.name for axis in (*op.axis, *(() if keeps_reduction else op.reduce_axis))]
    for position, loop in enumerate(stage.iterators):
        inner = state.attached_to(stage_id, position)
        free = keeps_reduction and position >= len(axes)
        if inner:
            name = state.stages[inner[0]].name
            found = f"stage {name!r} is computed inside its loop {loop.name!r}"
        elif not free and axes[position : position + 1] != [loop.name]:
            found = f"its loops have been transformed ({loop.name!r} is not the axis that was here)"
        elif loop.annotation is not Annotation.NONE:
            found = f"its loop {loop.name!r} is annotated {loop.annotation.word}"
        else:
            continue
        raise refuse(stage, f"{what}: {found}; {advice}", position)


def _settings(stage: Stage) -> str:
    """What has been said of a stage as a whole, if anything."""
    if stage.compute_at is not ComputeAt.ROOT:
        return "it is not computed at root"
    if stage.streaming:
        return "it has streaming_stores"
    if stage.prefetch is not None:
        return "it has prefetch"
    if stage.swizzle:
        return "it has swizzle"
    if stage.buffering:
        return f"it has {stage.buffering}"
    if stage.auto_unroll_max_step > 0:
        return f"it has the pragma auto_unroll_max_step, {stage.auto_unroll_max_step}"
    if stage.storage_align is not None and stage.storage_align[0] in {a.name for a in stage.compute.axis}:
        return f"it has storage_align along {stage.storage_align[0]!r}"
    return ""


@dataclass(frozen=True, slots=True)
class CacheWriteStep(Step):
    """Compute a stage into `scope` first and copy the result out.

    The new stage `X.scope` does the computation over axes `i_c` and takes X's position; X becomes the
    copy and moves one position on.
    """

    code: ClassVar[str] = "CHW"
    stage: int
    scope: str

    def apply(self, state: State) -> State:
        check_scope("cache_write", self.scope)
        stage = stage_at(state, self.stage, "cache_write")
        refuse_transformed(state, self.stage, "cache_write")
        op = stage.compute
        taken = {axis.name for axis in op.reduce_axis}
        axes = tuple(IterVar(fresh_name(f"{a.name}_c", taken), a.dtype, a.extent) for a in op.axis)
        renamed = dict[Var, Expr](zip(op.axis, axes, strict=True))
        body = rewrite_body(op, lambda expr: substitute(expr, renamed))
        return insert_cache(state, self.stage, self.scope, axes, op.reduce_axis, body)


def insert_cache(
    state: State,
    stage_id: int,
    scope: str,
    axes: tuple[IterVar, ...],
    reduce_axes: tuple[IterVar, ...],
    body: tuple[Expr, ...],
) -> State:
    """Insert a stage `X.scope` before X with the computation `body` over axes; X copies its elements."""
    stage = state.stages[stage_id]
    op = stage.compute
    name = _unique_name(state, op.name, scope)
    renamed = zip((*op.axis, *op.reduce_axis), (*axes, *reduce_axes), strict=True)
    attrs = renamed_tiles(op.attrs, {old.name: new.name for old, new in renamed})
    cached = ComputeOp(name, axes, reduce_axes, body, op.tag, attrs)
    reads = tuple(Read(t, op.axis, t.dtype) for t in cached.outputs)
    copy = ComputeOp(op.name, op.axis, (), reads, op.tag, layout_attr(op))
    fresh = replace(Stage.of_op(copy, stage.scope), handles=(*stage.handles, copy))
    stages = (
        *state.stages[:stage_id],
        Stage.of_op(cached, scope),
        fresh,
        *state.stages[stage_id + 1 :],
    )
    moved = dict(zip(op.outputs, copy.outputs, strict=True))
    return state.with_stages(rebuild(stages, lambda op: redirect(op, moved)), stage_id)


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
    name = _unique_name(state, op.name, "rf")
    factored = ComputeOp(name, axes, reduce_axes, body, op.tag, dict(op.attrs))
    return factored, _merge(_unique_name(state, op.name, "repl"), op, roots, factored, factor_at)


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
        if bool(np.any(over)) if not isinstance(over, Expr) else True:
            conditions.append(Binary(BinaryOp.LT, values[relation.parent], expr_of(extent), "bool"))
    return conditions
