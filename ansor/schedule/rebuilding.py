"""Operations rebuilt: what steps that add a stage, or change what one computes, do to the others.

A new operation is inserted, the one that it serves gets a new body, and everything downstream is rebuilt to
read the new tensors. The schedule's own graph (`State.dag`) never changes; the rebuilt operations live in the
state's stages, whose `handles` keep earlier tensors usable as names.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from operator import is_
from typing import TYPE_CHECKING

from ansor.schedule.stages import Annotation, ComputeAt, Stage
from ansor.schedule.step_base import refuse
from ansor.te.expr import Expr, Read, Reduce, rewrite
from ansor.te.tensor import ComputeOp, Operation, Tensor

if TYPE_CHECKING:
    from ansor.schedule.state import State

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


def unique_name(state: State, base: str, suffix: str) -> str:
    """`base.suffix`, or `base.d.suffix` and so on while that name is taken."""
    taken = {stage.name for stage in state.stages}
    while f"{base}.{suffix}" in taken:
        base += ".d"
    return f"{base}.{suffix}"


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
    if stage.read_ahead is not None:
        return "it has read_ahead"
    if stage.swizzle:
        return "it has swizzle"
    if stage.buffering:
        return f"it has {stage.buffering}"
    if stage.auto_unroll_max_step > 0:
        return f"it has the pragma auto_unroll_max_step, {stage.auto_unroll_max_step}"
    if stage.storage_align is not None and stage.storage_align[0] in {a.name for a in stage.compute.axis}:
        return f"it has storage_align along {stage.storage_align[0]!r}"
    return ""
