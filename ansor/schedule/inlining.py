"""The expressions that stages really compute once inlined stages are substituted."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from ansor.ir.rewriting import negated
from ansor.schedule.rebuilding import rewrite_body
from ansor.schedule.stages import ComputeAt
from ansor.te.expr import (
    Const,
    Expr,
    Not,
    Read,
    Select,
    Var,
    cast,
    distinct_nodes,
    rewrite,
    substitute,
)
from ansor.te.structure import shared
from ansor.te.tensor import ComputeOp, Operation

if TYPE_CHECKING:
    from ansor.schedule.state import State


def effective_body(state: State, stage: int) -> tuple[Expr, ...]:
    """The body of a stage with reads of inlined stages replaced by what those compute.

    A choice of a constant, as padding is, has the constant last, however it was written. The outputs of one
    reduction keep sharing their sources.
    """
    return _body(state.stages[stage].compute, inlined_operations(state))


def inlined_operations(state: State) -> frozenset[Operation]:
    """The operations that have no loops of their own."""
    return frozenset(stage.op for stage in state.stages if stage.compute_at is ComputeAt.INLINED)


@lru_cache(maxsize=4096)
def effective_reads(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[Read, ...]:
    """The reads in an operation's body, with others inlined as in `effective_body`; each node once."""
    found: dict[int, Read] = {}
    for root in _body(op, inlined):
        found.update((id(node), node) for node in distinct_nodes(root) if isinstance(node, Read))
    return tuple(found.values())


def _body(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[Expr, ...]:
    for producer in _inlined_producers(op, inlined):  # inputs first, so that nothing recurses down a chain
        _effective(producer, inlined)
    return _effective(op, inlined)


@lru_cache(maxsize=4096)
def _inlined_producers(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[ComputeOp, ...]:
    """The operations that are inlined into `op`, directly or not, each after those inlined into it."""
    order: dict[ComputeOp, None] = {}
    stack: list[tuple[ComputeOp, bool]] = [(op, False)]
    while stack:
        current, expanded = stack.pop()
        if expanded:
            order[current] = None
        elif current not in order:
            stack.append((current, True))
            producers = (tensor.op for tensor in current.input_tensors)
            stack.extend((p, False) for p in producers if p in inlined and isinstance(p, ComputeOp))
    return tuple(producer for producer in order if producer is not op)


@lru_cache(maxsize=4096)
def _effective(op: ComputeOp, inlined: frozenset[Operation]) -> tuple[Expr, ...]:
    def visit(node: Expr) -> Expr | None:
        match node:
            case Select():
                return _in_order(node)
            case Read(tensor=tensor, indices=indices) if tensor.op in inlined:
                producer = tensor.op
                assert isinstance(producer, ComputeOp)
                pairs = zip(producer.axis, indices, strict=True)
                mapping: dict[Var, Expr] = {axis: cast(index, axis.dtype) for axis, index in pairs}
                return substitute(_effective(producer, inlined)[tensor.value_index], mapping)
            case _:
                return None

    if not any(tensor.op in inlined for tensor in op.input_tensors):
        return rewrite_body(op, lambda expr: rewrite(expr, visit))
    known: dict[object, Expr] = {}  # what is read twice is there once, as it may read others twice
    return rewrite_body(op, lambda expr: shared(rewrite(expr, visit), known))


def _in_order(choice: Select) -> Select:
    """The same choice with its constant last, if it has one, and no `not` in front of its condition."""
    match choice:
        case Select(cond=cond, then=Const() as then, other=other) if not isinstance(other, Const):
            return replace(choice, cond=negated(cond), then=other, other=then)
        case Select(cond=Not(a=a)):
            return replace(choice, cond=negated(a))
        case _:
            return choice
